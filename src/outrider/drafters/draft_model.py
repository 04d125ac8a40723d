"""A smaller model that guesses what the target would say.

Knows nothing of the target but the width of its vocabulary. What it proposes can slow the target down, never change
what the target says.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from outrider._core import Law, has_token
from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import PIECE, feed_all_but_last_piece
from outrider.drafters.base import DraftRequest
from outrider.drafters.draft_caches import WORTH_SHARING, DraftCache, DraftCaches, common_length
from outrider.drafters.tree_shape import best_tree
from outrider.errors import NumericalError, UsageError
from outrider.sampling.distribution import greedy_choice, token_law
from outrider.types import Draft, DraftCoins, Logits, Proposal, TreeDraft, Verdict, Weights
from outrider.verification.law import LawRows, without

# How often the first, second, ... candidate for a place is the one accepted: Qwen2.5-Coder 0.5B for the 1.5B, between
# what is measured greedily and at temperature 1 (benchmarks/results/rules.json).
ACCEPTANCE_BY_RANK = (0.78, 0.09, 0.035, 0.02)
# What the rounds before have left to be fed, as a rule: it goes with the first pass of a draft, whoever waits.
_FEW = 16


@dataclass(slots=True)
class _Growth:
    """One request's draft in the making, level by level; a chain has one token a level.

    ``level`` holds the tokens that get children next, -1 for the context; ``inner`` those whose turn has come.
    """

    request: DraftRequest
    cache: DraftCache
    widths: dict[int, tuple[int, ...]]  # of the shape: the places below each place, -1 for the context
    is_chain: bool
    pending_ids: Sequence[int]  # of the context, to be fed before the first token can be chosen
    vocab_size: int
    token_ids: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    level: list[int] = field(default_factory=lambda: [-1])
    inner: list[int] = field(default_factory=list)
    laws: dict[int, Law] = field(default_factory=dict)  # what the children of each were drawn from, if they were
    confidence: dict[int, float] = field(default_factory=lambda: {-1: 1.0})  # that a token is reached, estimated
    chances: list[float] = field(default_factory=list)  # that each is accepted if those before it are, estimated
    problem: str | None = None
    num_read: int | None = None  # of the context's tokens; where set, more are to be read before the first is chosen

    def path(self, node: int) -> list[int]:
        path: list[int] = []
        while node >= 0:
            path.append(self.token_ids[node])
            node = self.parents[node]
        return path[::-1]

    def to_draft(self) -> Proposal:
        if self.num_read is not None:
            return Draft((), is_reading=True)
        if self.is_chain:
            laws = LawRows([self.laws[node] for node in self.parents if node in self.laws], self.vocab_size)
            is_drawn = not self.request.shaper.params.is_greedy
            return Draft(tuple(self.token_ids), laws if is_drawn else None, self.problem, tuple(self.chances))
        probs = [self.laws.get(node) for node in range(-1, len(self.token_ids))]
        return TreeDraft(tuple(self.token_ids), tuple(self.parents), tuple(probs), self.problem)


class DraftModelDrafter:
    """Drafts with a model of its own.

    Greedy requests get the model's most likely tokens, as a point mass. Other requests get tokens drawn from the
    model's law, shaped by the request's own parameters, and that very law as ``probs``. A request that has outgrown
    the model's context, or holds a token that the model does not know, gets no draft; a draft ends where the
    parameters leave no token that the model would say, or where its logits are not numbers: a broken draft model costs
    its drafts, not the answer. What requests that are open at the same time begin with, such as the prompt of ``n``
    answers, is read once; if it keeps contexts, what earlier ones began with, too.

    Args:
        backend: The draft model. The drafter is its only user.
        vocab_size: How many ids the target knows. Ids beyond are never proposed; ids that the draft model lacks have
            probability zero.
        name: For people and for the result document.
        stop_ids: Tokens after which drafting on is pointless, such as end of sequence.
        min_confidence: Draft on only while the chance that all draft tokens so far are accepted is at least this, as
            estimated by the largest probability of each law. Only whether to go on depends on it; a token once chosen
            is never taken back, so the target's law is safe. 0 always drafts as many tokens as are asked for.
        tree_size: How many tokens a draft has, as a tree of the shape of which most are accepted; 0 drafts chains.
        acceptance_by_rank: How often the first, second, ... candidate for a place is the one accepted.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        backend: Backend,
        *,
        vocab_size: int,
        name: str,
        stop_ids: Collection[int] = (),
        min_confidence: float = 0.0,
        tree_size: int = 0,
        acceptance_by_rank: Sequence[float] = ACCEPTANCE_BY_RANK,
    ) -> None:
        self.name = name
        self._backend = backend
        self._vocab_size = vocab_size
        self._stop_ids = frozenset(stop_ids)
        self._min_confidence = min_confidence
        self._tree_size = tree_size
        self._acceptance_by_rank = tuple(acceptance_by_rank)
        self._caches = DraftCaches(backend)
        self._shapes: dict[tuple[int, int], tuple[int, ...]] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. One pass a level, for all requests together."""
        new = [request for request in requests if request.request_id not in self._caches]
        self._read_together([request for request in new if request.max_read_tokens is None])
        num_read = 0
        started: list[_Growth | None] = []
        for request in requests:
            growth = None if self._should_wait(request, started) else self._start(request)
            num_read += 0 if growth is None else self._portion(growth, num_read)
            started.append(growth)
        growths = [growth for growth in started if growth is not None]
        self._read([growth for growth in growths if growth.num_read])
        try:
            self._grow_all(growths)
        finally:  # a tree must not stay: others may begin with what is there
            for growth in growths:
                if not growth.is_chain:  # what is accepted of a tree is fed again with the token after it
                    self._backend.crop(growth.cache.sequence_id, growth.cache.num_confirmed)
        return [Draft((), is_reading=True) if growth is None else growth.to_draft() for growth in started]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Nothing to learn: the next context says it all."""

    def release(self, request_id: Hashable) -> None:
        """Free the cache of a request, or keep what it holds of the context."""
        self._caches.release(request_id)

    def keep_contexts(self, max_tokens: int, grain: int = 1) -> None:
        """See :meth:`outrider.drafters.base.KeepsContexts.keep_contexts`."""
        self._caches.keep(max_tokens, grain)

    def num_held(self, context_ids: Sequence[int]) -> int:
        """See :meth:`outrider.drafters.base.KeepsContexts.num_held`."""
        return self._caches.num_held(context_ids)

    def _read_together(self, requests: Sequence[DraftRequest]) -> None:
        """Feed what each of some new requests has in common with the next one, unless another has been fed it."""
        for request, following in pairwise(requests):
            length = common_length(request.context_ids, following.context_ids)
            shared_ids = request.context_ids[: min(length, len(request.context_ids) - 1)]  # the last has its own pass
            if not WORTH_SHARING <= len(shared_ids) <= self._backend.max_length:
                continue
            if max(shared_ids) < self._backend.vocab_size:
                cache = self._caches.of(request)
                for start in range(cache.num_confirmed, len(shared_ids), PIECE):
                    piece = shared_ids[start : start + PIECE]
                    self._backend.forward([Rows(cache.sequence_id, piece, num_logits=0)])
                    cache.num_confirmed += len(piece)

    def _should_wait(self, request: DraftRequest, started: Sequence[_Growth | None]) -> bool:
        """Whether this new request, one of many that read little in a round, begins with what another is to read."""
        if request.request_id in self._caches or request.max_read_tokens is None:
            return False
        return any(
            common_length(growth.request.context_ids, request.context_ids) >= growth.cache.num_confirmed + WORTH_SHARING
            for growth in started
            if growth is not None and (growth.num_read is not None or self._can_grow(growth))
        )

    def _start(self, request: DraftRequest) -> _Growth:
        """Crop the cache to what it shares with the context; what is missing, at least the last token, is pending.

        After a chain that was accepted whole two tokens are missing: the last draft token, which was never fed, and
        the bonus token. After a chain that was not it is the recovered token. Only what was drafted last is compared,
        for a context only grows.
        """
        cache = self._caches.of(request)
        last = len(request.context_ids) - 1
        cache.num_confirmed = min(cache.num_confirmed, last)
        for token_id in cache.drafted_ids:
            if cache.num_confirmed == last or request.context_ids[cache.num_confirmed] != token_id:
                break
            cache.num_confirmed += 1
        cache.drafted_ids.clear()
        self._backend.crop(cache.sequence_id, cache.num_confirmed)
        shape = self._shape(request)
        is_chain = shape == tuple(range(-1, len(shape) - 1))
        widths = {
            place: tuple(below for below, parent in enumerate(shape) if parent == place) for place in (-1, *shape)
        }
        pending_ids = request.context_ids[cache.num_confirmed :]
        return _Growth(request, cache, widths, is_chain, pending_ids, self._vocab_size)

    def _portion(self, growth: _Growth, num_read: int) -> int:
        """Return how much of a context is read in this round, in which others have so many tokens read."""
        limit, count = growth.request.max_read_tokens, len(growth.pending_ids)
        if limit is None or count <= _FEW or not self._can_grow(growth):
            return 0
        room = max(0, limit - num_read)
        if count > room:
            growth.num_read = room
        return min(count, room)

    def _read(self, growths: Sequence[_Growth]) -> None:
        """Read as much of contexts as there is room for, in one pass."""
        pieces = [growth.pending_ids[: growth.num_read] for growth in growths]
        if not pieces:
            return
        ids = [growth.cache.sequence_id for growth in growths]
        self._backend.forward([Rows(one, piece, num_logits=0) for one, piece in zip(ids, pieces, strict=True)])
        for growth, piece in zip(growths, pieces, strict=True):
            growth.cache.num_confirmed += len(piece)

    def _grow_all(self, growths: Sequence[_Growth]) -> None:
        """Let drafts grow, a level of all of them in each pass."""
        growing = [growth for growth in growths if self._can_grow(growth)]
        while growing:
            batch = [self._rows(growth) for growth in growing]
            logits = self._backend.forward(batch)
            for growth, rows in zip(growing, batch, strict=True):
                self._grow(growth, logits[: rows.num_logits])
                logits = logits[rows.num_logits :]
            growing = [growth for growth in growing if self._can_grow(growth)]

    def _shape(self, request: DraftRequest) -> tuple[int, ...]:
        size, depth = min(self._tree_size, request.max_tree_tokens), request.max_tokens
        if size == 0:
            return tuple(range(-1, depth - 1))
        if (size, depth) not in self._shapes:
            self._shapes[size, depth] = best_tree(self._acceptance_by_rank, size, depth)
        return self._shapes[size, depth]

    def _can_grow(self, growth: _Growth) -> bool:
        """Narrow the level to the tokens that can get children; return whether it is worth a pass to give them some."""
        if growth.num_read is not None:
            return False
        is_start = growth.level == [-1]
        growth.level = [node for node in growth.level if self._may_go_on(growth, node)]
        if not growth.level or sum(growth.confidence[node] for node in growth.level) < self._least_chance(growth):
            return False
        fed = len(growth.pending_ids) if is_start else 1 if growth.is_chain else len(growth.inner) + len(growth.level)
        held = self._backend.length(growth.cache.sequence_id) if growth.is_chain else growth.cache.num_confirmed
        return held + fed <= self._backend.max_length

    def _least_chance(self, growth: _Growth) -> float:
        """Return how likely the last level must be reached for another to be worth its pass."""
        depth = len(growth.path(growth.level[0]))
        wanted = growth.request.least_chances
        return max(self._min_confidence, wanted[depth] if depth < len(wanted) else 0.0)

    def _may_go_on(self, growth: _Growth, node: int) -> bool:
        if node < 0:
            return bool(growth.widths[-1]) and max(growth.pending_ids) < self._backend.vocab_size
        token_id, place = growth.token_ids[node], growth.places[node]
        return place in growth.widths and token_id not in self._stop_ids and token_id < self._backend.vocab_size

    def _rows(self, growth: _Growth) -> Rows:
        """Return what the next level needs fed: the rest of the context, the end of a chain, a tree but leaves."""
        sequence_id = growth.cache.sequence_id
        if growth.level == [-1]:
            return Rows(sequence_id, feed_all_but_last_piece(self._backend, sequence_id, growth.pending_ids))
        if growth.is_chain:
            return Rows(sequence_id, growth.token_ids[-1:])
        self._backend.crop(sequence_id, growth.cache.num_confirmed)
        fed = [*growth.inner[1:], *growth.level]  # but for the context
        parents = [growth.parents[node] for node in fed]
        return Rows(
            sequence_id,
            [growth.token_ids[node] for node in fed],
            len(growth.level),
            [parent if parent < 0 else fed.index(parent) for parent in parents],
        )

    def _grow(self, growth: _Growth, logits: Logits) -> None:
        """Choose the children of a level from a row of logits for each of its tokens, which have been fed."""
        if growth.level == [-1]:
            growth.cache.num_confirmed += len(growth.pending_ids)
        elif growth.is_chain:
            growth.cache.drafted_ids += growth.token_ids[-1:]
        first = len(growth.token_ids)
        for node, row in zip(growth.level, logits, strict=True):
            path = growth.path(node)
            growth.inner.append(node)
            try:
                padded = self._padded(row)[np.newaxis]
                out = padded if padded.flags.writeable else None
                shaped = growth.request.shaper.shape(padded, path, out=out)
                if not growth.request.shaper.is_busy(len(path)) or has_token(shaped[0]):
                    self._branch(growth, node, shaped, len(path))
            except (NumericalError, UsageError) as error:  # its logits are no numbers; the grammar is too complex there
                growth.problem = str(error)
        growth.level = list(range(first, len(growth.token_ids)))

    def _branch(self, growth: _Growth, node: int, shaped: Logits, depth: int) -> None:
        """Give a token its children: the likeliest tokens of a greedy request, draws without replacement of another."""
        places = growth.widths[-1 if node < 0 else growth.places[node]]
        if growth.request.shaper.params.is_greedy:
            token_ids, likeliest = _likeliest(shaped[0], len(places))
        else:
            law = token_law(shaped[0], growth.request.shaper.params)
            token_ids, likeliest = _drawn(law, len(places), growth.request.coins, depth), law.max()
            growth.laws[node] = law
        by_rank = self._acceptance_by_rank
        for rank, (token_id, place) in enumerate(zip(token_ids, places, strict=False)):
            share = likeliest if rank == 0 else (1 - likeliest) * by_rank[rank] / (1 - by_rank[0])
            growth.chances.append(share)
            growth.confidence[len(growth.token_ids)] = growth.confidence[node] * share
            growth.token_ids.append(token_id)
            growth.parents.append(node)
            growth.places.append(place)

    def _padded(self, logits: Logits) -> Logits:
        """Return a row of logits as wide as the target's vocabulary."""
        missing = self._vocab_size - len(logits)
        if missing <= 0:
            return logits[: self._vocab_size]
        return np.pad(logits, (0, missing), constant_values=-np.inf)


def _likeliest(row: Logits, count: int) -> tuple[list[int], float]:
    """Return the ids of the largest logits, the lowest on a tie, none that is excluded; and the first's probability."""
    token_id, probability = greedy_choice(row)
    token_ids = [token_id]
    row = row.copy() if count > 1 else row
    while len(token_ids) < count:
        row[token_ids[-1]] = -np.inf
        following = int(row.argmax())
        if row[following] == -np.inf:
            break
        token_ids.append(following)
    return token_ids, probability


def _drawn(law: Weights, count: int, coins: DraftCoins, depth: int) -> list[int]:
    """Return draws from a law, one after the other and without replacement, as long as there are any."""
    token_ids = [coins.at_depth(depth).draw(law)]
    while len(token_ids) < count:
        law = without(law, token_ids[-1])
        if law.sum() == 0:
            break
        token_ids.append(coins.at_depth(depth).draw(law))
    return token_ids
