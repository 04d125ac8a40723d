"""One round of speculative decoding over any number of sequences: draft, score, verify, commit.

Knows nothing of prompts, requests or time. A sequence without a draft takes part like any other: its round is a plain
decoding step.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import feed_all_but_last_piece
from outrider.drafters.base import Drafter, DraftRequest
from outrider.engine.commit import commit
from outrider.engine.outputs import EmittedToken
from outrider.engine.rules import Rule, coins, verify
from outrider.engine.sequence import Request, Sequence
from outrider.engine.text import Detokenizer, TextAssembler
from outrider.errors import UsageError
from outrider.sampling import LawShaper, TargetLaw
from outrider.sampling.target_law import plain_probs, token_logprobs
from outrider.types import Draft, Logits
from outrider.verification import CoinSource, Purpose

NO_DRAFT = Draft(())
# Rows of logits at a time where each position of a prompt is looked at: 20 MB for a vocabulary of 150,000.
_PROMPT_ROWS = 32


@dataclass(frozen=True, slots=True)
class Stepper:
    """Takes sequences forward, one round at a time.

    Attributes:
        target: The target model.
        vocab_size: How many ids have a token; logits beyond, which pad some models' matrices, are not looked at.
        eos_ids: Tokens that end an answer.
        detokenizer: Of the target.
        drafter: Proposes draft tokens, or None.
        num_speculative_tokens: The most draft tokens of a sequence in a round.
        rule: How drafts of requests that are not greedy are verified; see :mod:`outrider.engine.rules`.
    """

    target: Backend
    vocab_size: int
    eos_ids: frozenset[int]
    detokenizer: Detokenizer
    drafter: Drafter | None = None
    num_speculative_tokens: int = 0
    rule: Rule = "auto"

    def open(self, request: Request) -> Sequence:
        """Return the sequence that will answer a request, ready for its first round."""
        prompt_ids = list(request.prompt_ids)
        return Sequence(
            request=request,
            cache_id=self.target.open_sequence(),
            max_length=min(len(prompt_ids) + request.params.max_tokens, self.target.max_length),
            text=TextAssembler(self.detokenizer, request.params.stop),
            coins=CoinSource(request.seed, request.choice),
            shaper=LawShaper(request.compiled, prompt_ids),
            token_ids=prompt_ids,
        )

    def close(self, sequence: Sequence) -> None:
        """Free what a sequence holds in the target and in the drafter."""
        self.target.close_sequence(sequence.cache_id)
        if self.drafter is not None:
            self.drafter.release(sequence.request.request_id)

    def step(self, sequences: list[Sequence]) -> list[tuple[EmittedToken, ...]]:
        """Run one round of each sequence and return what each emitted, at least one token."""
        drafts = self._draft(sequences)
        logits = self._score(sequences, drafts)
        emitted = []
        for sequence, draft in zip(sequences, drafts, strict=True):
            rows, logits = logits[: len(draft) + 1], logits[len(draft) + 1 :]
            law = TargetLaw(rows, sequence.shaper, draft.token_ids)
            result = verify(sequence, draft, law, self.rule)
            emitted.append(commit(sequence, draft, result, law, self.eos_ids))
            self.target.crop(sequence.cache_id, len(sequence.token_ids) - 1)
            if self.drafter is not None and len(draft):
                self.drafter.observe(sequence.request.request_id, result)
        return emitted

    def _draft(self, sequences: list[Sequence]) -> list[Draft]:
        """Return a draft per sequence. The first round of a sequence has none: its first token should not wait."""
        drafts = [NO_DRAFT] * len(sequences)
        rooms = [0 if sequence.is_new else self._room(sequence) for sequence in sequences]
        asked = [index for index, room in enumerate(rooms) if room > 0]
        if self.drafter is None or not asked:
            return drafts
        proposed = self.drafter.propose([self._draft_request(sequences[index], rooms[index]) for index in asked])
        for index, draft in zip(asked, proposed, strict=True):
            self._check(draft, rooms[index], self.drafter.name)
            sequences[index].draft_problem = draft.problem or sequences[index].draft_problem
            drafts[index] = draft
        return drafts

    def _room(self, sequence: Sequence) -> int:
        """Return how many draft tokens are worth verifying: the token after them must have its place, too."""
        return min(self.num_speculative_tokens, sequence.num_remaining - 1)

    def _draft_request(self, sequence: Sequence, room: int) -> DraftRequest:
        return DraftRequest(
            request_id=sequence.request.request_id,
            context_ids=sequence.token_ids,
            max_tokens=room,
            shaper=sequence.shaper,
            coins=coins(sequence, Purpose.DRAFT, self.rule),
        )

    def _check(self, draft: Draft, room: int, drafter: str) -> None:
        """Refuse a draft that breaks the contract. To mend it, by what its tokens are, would bend the target's law."""
        if len(draft) > room or not all(0 <= token_id < self.vocab_size for token_id in draft.token_ids):
            raise UsageError(
                f"drafter {drafter!r} proposed {draft.token_ids}; it may propose at most {room} tokens, "
                f"with ids from 0 to {self.vocab_size - 1}"
            )

    def _score(self, sequences: list[Sequence], drafts: list[Draft]) -> Logits:
        """Return ``[sum(len(draft) + 1), vocab_size]``: the target's logits at every draft token and after the last."""
        batch = []
        for sequence, draft in zip(sequences, drafts, strict=True):
            if sequence.is_new and sequence.params.prompt_logprobs is not None:
                self._read_prompt(sequence, sequence.params.prompt_logprobs)
            unfed = sequence.token_ids[self.target.length(sequence.cache_id) :]
            pending = feed_all_but_last_piece(self.target, sequence.cache_id, unfed)
            batch.append(Rows(sequence.cache_id, [*pending, *draft.token_ids], num_logits=len(draft) + 1))
        return self.target.forward(batch)[:, : self.vocab_size]

    def _read_prompt(self, sequence: Sequence, num_top: int) -> None:
        """Feed a prompt but for its last token, and note how likely each of its tokens is."""
        prompt_ids = sequence.request.prompt_ids
        sequence.prompt_logprobs = [None]
        for start in range(0, len(prompt_ids) - 1, _PROMPT_ROWS):
            fed = prompt_ids[start : min(start + _PROMPT_ROWS, len(prompt_ids) - 1)]
            logits = self.target.forward([Rows(sequence.cache_id, fed, num_logits=len(fed))])
            for row, next_id in zip(logits, prompt_ids[start + 1 :], strict=False):
                sequence.prompt_logprobs.append(token_logprobs(plain_probs(row[: self.vocab_size]), next_id, num_top))
