"""A smaller model that guesses what the target would say.

Knows nothing of the target but the width of its vocabulary. What it proposes can slow the target down, never change
what the target says.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import feed_all_but_last_piece
from outrider.drafters.base import DraftRequest
from outrider.errors import NumericalError, UsageError
from outrider.sampling.distribution import greedy_token_ids, target_probs
from outrider.types import Draft, Logits, Probs, Verdict


@dataclass(slots=True)
class _Cache:
    """What the backend's cache holds for one request: a prefix of its context, then draft tokens that were fed."""

    sequence_id: int
    num_confirmed: int = 0
    drafted_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Branch:
    """One request's draft in the making."""

    request: DraftRequest
    cache: _Cache
    pending_ids: Sequence[int]  # to be fed before the next token can be chosen
    probs: Probs | None  # [max_tokens, vocab_size], row i the law that token i was drawn from; None if not drawn
    token_ids: list[int] = field(default_factory=list)
    confidence: float = 1.0  # the estimated chance that all of them are accepted
    problem: str | None = None

    def to_draft(self) -> Draft:
        probs = None if self.probs is None else self.probs[: len(self.token_ids)]
        return Draft(tuple(self.token_ids), probs, self.problem)


class DraftModelDrafter:
    """Drafts with a model of its own.

    Greedy requests get the model's most likely tokens, as a point mass. Other requests get tokens drawn from the
    model's law, shaped by the request's own parameters, and that very law as ``probs``. A request that has outgrown
    the model's context, or holds a token that the model does not know, gets no draft; a draft ends where the
    parameters leave no token that the model would say, or where its logits are not numbers: a broken draft model costs
    its drafts, not the answer.

    Args:
        backend: The draft model. The drafter is its only user.
        vocab_size: How many ids the target knows. Ids beyond are never proposed; ids that the draft model lacks have
            probability zero.
        name: For people and for the result document.
        stop_ids: Tokens after which drafting on is pointless, such as end of sequence.
        min_confidence: Draft on only while the chance that all draft tokens so far are accepted is at least this, as
            estimated by the largest probability of each law. Only whether to go on depends on it; a token once chosen
            is never taken back, so the target's law is safe. 0 always drafts as many tokens as are asked for.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        vocab_size: int,
        name: str,
        stop_ids: Collection[int] = (),
        min_confidence: float = 0.0,
    ) -> None:
        self.name = name
        self._backend = backend
        self._vocab_size = vocab_size
        self._stop_ids = frozenset(stop_ids)
        self._min_confidence = min_confidence
        self._caches: dict[Hashable, _Cache] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. One pass a token, for all requests together."""
        branches = [self._branch(request) for request in requests]
        growing = [branch for branch in branches if self._can_grow(branch)]
        while growing:
            logits = self._backend.forward([self._rows(branch) for branch in growing])
            grown = [self._grow(branch, row) for branch, row in zip(growing, logits, strict=True)]
            growing = [branch for branch, has in zip(growing, grown, strict=True) if has and self._can_grow(branch)]
        return [branch.to_draft() for branch in branches]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Nothing to learn: the next context says it all."""

    def release(self, request_id: Hashable) -> None:
        """Free the cache of a request."""
        cache = self._caches.pop(request_id, None)
        if cache is not None:
            self._backend.close_sequence(cache.sequence_id)

    def _branch(self, request: DraftRequest) -> _Branch:
        """Crop the cache to what it shares with the context; what is missing, at least the last token, is pending.

        After a draft that was accepted whole two tokens are missing: the last draft token, which was never fed, and
        the bonus token. After any other round it is the recovered token. Only what was drafted last is compared, for
        a context only grows.
        """
        cache = self._caches.get(request.request_id)
        if cache is None:
            cache = self._caches[request.request_id] = _Cache(self._backend.open_sequence())
        last = len(request.context_ids) - 1
        cache.num_confirmed = min(cache.num_confirmed, last)
        for token_id in cache.drafted_ids:
            if cache.num_confirmed == last or request.context_ids[cache.num_confirmed] != token_id:
                break
            cache.num_confirmed += 1
        cache.drafted_ids.clear()
        self._backend.crop(cache.sequence_id, cache.num_confirmed)
        probs = None if request.shaper.params.is_greedy else np.zeros((request.max_tokens, self._vocab_size))
        return _Branch(request, cache, request.context_ids[cache.num_confirmed :], probs)

    def _can_grow(self, branch: _Branch) -> bool:
        if len(branch.token_ids) >= branch.request.max_tokens or branch.confidence < self._min_confidence:
            return False
        if self._stop_ids.intersection(branch.token_ids[-1:]):
            return False
        length = self._backend.length(branch.cache.sequence_id) + len(branch.pending_ids)
        return length <= self._backend.max_length and max(branch.pending_ids) < self._backend.vocab_size

    def _rows(self, branch: _Branch) -> Rows:
        sequence_id = branch.cache.sequence_id
        return Rows(sequence_id, feed_all_but_last_piece(self._backend, sequence_id, branch.pending_ids))

    def _grow(self, branch: _Branch, logits: Logits) -> bool:
        """Choose the next draft token from a row of logits, after everything pending was fed; say if there is one."""
        if branch.token_ids:
            branch.cache.drafted_ids += branch.pending_ids
        else:
            branch.cache.num_confirmed += len(branch.pending_ids)
        branch.pending_ids = []
        try:
            shaped = branch.request.shaper.shape(self._padded(logits)[np.newaxis], branch.token_ids)
            if shaped.max() == -np.inf:
                return False
            token_id = self._choose(branch, shaped)
        except (NumericalError, UsageError) as error:  # its logits are no numbers; the grammar is too complex there
            branch.problem = str(error)
            return False
        branch.token_ids.append(token_id)
        branch.pending_ids = [token_id]
        return True

    def _choose(self, branch: _Branch, shaped: Logits) -> int:
        if branch.probs is None:
            token_id = int(greedy_token_ids(shaped)[0])
            branch.confidence /= float(np.exp(shaped[0] - shaped[0, token_id]).sum())
            return token_id
        law = branch.probs[len(branch.token_ids)]
        law[:] = target_probs(shaped, branch.request.shaper.params)[0]
        branch.confidence *= float(law.max())
        return branch.request.coins.draw(law)

    def _padded(self, logits: Logits) -> Logits:
        """Return a row of logits as wide as the target's vocabulary."""
        missing = self._vocab_size - len(logits)
        if missing <= 0:
            return logits[: self._vocab_size]
        return np.pad(logits, (0, missing), constant_values=-np.inf)
