"""Drafting with a model of another vocabulary.

Two ways, each with the target's law kept by the ordinary rules of verification:

* Token by token: the draft's law, given that its token is one of the target's, is a law over the target's tokens
  (token-level intersection). It is what the token is drawn from, and what is handed over.
* As a string: the draft writes on in tokens of its own, the likeliest at each place, and what it wrote is cut into the
  target's. That is a choice, not a sample of any law over the target's tokens, so it is verified as point masses.

Strings are right more often, since a draft is best at its own tokens: with SmolLM2-135M for Qwen2.5-Coder-1.5B a round
has 4.8 tokens instead of 3.1 on code, 2.4 instead of 2.2 on chat, and at temperature 1 3.9 instead of 3.0 and 1.9
instead of 2.0. Their being chosen token by token is worth more where the target's own choice is limited, by a grammar,
penalties and the like: then the draft's law goes through the same limits.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from itertools import groupby

from outrider.backends.base import Backend
from outrider.drafters.base import DraftRequest
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.translated_backend import TranslatedBackend
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
        translated = TranslatedBackend(backend, vocabulary)
        self._by_token, self._by_string = (
            DraftModelDrafter(translated, vocab_size=size, name=name, stop_ids=stop_ids, min_confidence=min_confidence)
            for size in (vocabulary.target_size, vocabulary.size)
        )
        target = Vocabulary(vocabulary.target.tokenizer, vocabulary.target_size)
        self._neutral = LawShaper(compile_params(SamplingParams(), target), ())

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. Proposes chains only."""
        pairs = [
            (replace(request, max_tree_tokens=0), self._strings and request.shaper.is_neutral) for request in requests
        ]
        written = iter(self._by_string.propose([replace(one, shaper=self._neutral) for one, yes in pairs if yes]))
        drawn = iter(self._by_token.propose([one for one, yes in pairs if not yes]))
        return [self._cut(next(written), one.max_tokens) if yes else next(drawn) for one, yes in pairs]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Nothing to learn: the next context says it all."""

    def release(self, request_id: Hashable) -> None:
        """Free the caches of a request."""
        self._by_token.release(request_id)
        self._by_string.release(request_id)

    def _cut(self, draft: Proposal, max_tokens: int) -> Draft:
        """Return a draft in joint ids as the target would cut its text."""
        vocabulary = self._vocabulary
        token_ids: list[int] = []
        for is_text, run in groupby(draft.token_ids, key=lambda joint_id: bool(vocabulary.token_bytes(joint_id))):
            if is_text:
                token_ids += vocabulary.target.encode(b"".join(map(vocabulary.token_bytes, run)))
            else:
                token_ids += run
        return Draft(tuple(token_ids[:max_tokens]), problem=draft.problem)
