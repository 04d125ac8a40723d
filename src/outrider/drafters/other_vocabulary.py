"""Drafting with a model of another vocabulary.

Two ways, each with the target's law kept by the ordinary rules of verification:

* Token by token: the draft's law, given that its token is one of the target's, is a law over the target's tokens
  (token-level intersection). It is what the token is drawn from, and what is handed over.
* As a string: the draft writes on in tokens of its own, the likeliest at each place, and what it wrote is cut into the
  target's. That is a choice, not a sample of any law over the target's tokens, so it is verified as point masses.

Strings are right more often, since a draft is best at its own tokens: with SmolLM2-135M for Qwen2.5-Coder-1.5B a round
has 4.2 tokens instead of 2.7 on code and 2.4 instead of 2.2 in chats (docs/log.md). Drawing token by token is for where
the target's own choice is limited, by a grammar, penalties and the like: the draft's law goes through the same.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise
from operator import mul

from outrider.backends.base import Backend
from outrider.drafters.base import DraftRequest
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.translated_backend import OwnTokensBackend, TranslatedBackend
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params
from outrider.types import Draft, Proposal, Verdict


class OtherVocabularyDrafter:
    """Drafts with a model whose tokens are not the target's.

    Args:
        backend: The draft model. The drafter is its only user.
        vocabulary: Of the target and the draft.
        name: For people and for the result document.
        stop_ids: The target's tokens after which drafting on is pointless, such as end of sequence.
        min_confidence: See :class:`~outrider.drafters.draft_model.DraftModelDrafter`.
        strings: Draft strings where nothing speaks against it; without, always token by token.
    """

    def __init__(  # noqa: PLR0913 - each is a fact of its own
        self,
        backend: Backend,
        vocabulary: JointVocabulary,
        *,
        name: str,
        stop_ids: Collection[int] = (),
        min_confidence: float = 0.0,
        strings: bool = True,
    ) -> None:
        self.name = name
        self._strings = strings
        self._vocabulary = vocabulary
        self._by_token = DraftModelDrafter(
            TranslatedBackend(backend, vocabulary),
            vocab_size=vocabulary.target_size,
            name=name,
            stop_ids=stop_ids,
            min_confidence=min_confidence,
        )
        joint_ids: list[int] = vocabulary.joint_ids.tolist()
        self._by_string = DraftModelDrafter(
            OwnTokensBackend(backend, vocabulary),
            vocab_size=vocabulary.draft_size,
            name=name,
            stop_ids=[own_id for own_id, joint_id in enumerate(joint_ids) if joint_id < 0 or joint_id in stop_ids],
            min_confidence=min_confidence,
        )
        self._contexts: dict[Hashable, list[int]] = {}
        target = Vocabulary(vocabulary.target.tokenizer, vocabulary.target_size)
        self._neutral = LawShaper(compile_params(SamplingParams(), target), ())

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. Proposes chains only."""
        pairs = [(request, self._strings and request.shaper.is_neutral) for request in requests]
        written = iter(self._by_string.propose([self._in_own_ids(one) for one, is_string in pairs if is_string]))
        drawn = iter(
            self._by_token.propose([replace(one, max_tree_tokens=0) for one, is_string in pairs if not is_string])
        )
        return [self._cut(next(written), one.max_tokens) if is_string else next(drawn) for one, is_string in pairs]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Nothing to learn: the next context says it all."""

    def release(self, request_id: Hashable) -> None:
        """Free the caches of a request."""
        self._by_token.release(request_id)
        self._by_string.release(request_id)
        self._contexts.pop(request_id, None)

    def _in_own_ids(self, request: DraftRequest) -> DraftRequest:
        """Return a wish for a string, in the numbering of :class:`OwnTokensBackend`."""
        context = self._contexts.setdefault(request.request_id, [])
        offset = self._vocabulary.draft_size
        context += [offset + token_id for token_id in request.context_ids[len(context) :]]
        return replace(request, context_ids=context, shaper=self._neutral, max_tree_tokens=0)

    def _cut(self, draft: Proposal, max_tokens: int) -> Draft:
        """Return what the draft wrote as the target would cut it, without control tokens that mean nothing to it."""
        vocabulary = self._vocabulary
        chances = draft.confidences if isinstance(draft, Draft) else ()
        written = zip(vocabulary.joint_ids[list(draft.token_ids)].tolist(), accumulate(chances, mul), strict=True)
        known = [(joint_id, survival) for joint_id, survival in written if joint_id >= 0]
        token_ids: list[int] = []
        survivals = [1.0]
        for is_text, run in groupby(known, key=lambda one: bool(vocabulary.token_bytes(one[0]))):
            same = list(run)
            pieces = [vocabulary.token_bytes(joint_id) for joint_id, _ in same]
            cut = vocabulary.target.encode(b"".join(pieces)) if is_text else [joint_id for joint_id, _ in same]
            token_ids += cut
            # As likely as the last of its own tokens that has a byte in it.
            by_byte = [survival for piece, (_, survival) in zip(pieces, same, strict=True) for _ in piece or b"."]
            ends = accumulate(len(vocabulary.target.token_bytes[token_id]) if is_text else 1 for token_id in cut)
            survivals += [by_byte[min(end, len(by_byte)) - 1] for end in ends]
        confidences = [after / before if before > 0 else 0.0 for before, after in pairwise(survivals)]
        return Draft(
            tuple(token_ids[:max_tokens]),
            problem=draft.problem,
            confidences=tuple(confidences[:max_tokens]),
            is_reading=isinstance(draft, Draft) and draft.is_reading,
            num_passes=len(draft),
        )
