"""One round of speculative decoding over any number of sequences: draft, score, verify, commit.

Knows nothing of prompts, requests or time. A sequence without a draft takes part like any other: its round is a plain
decoding step. What goes wrong with one sequence ends that sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import PIECE, feed_all_but_last_piece
from outrider.drafters.base import Drafter, DraftRequest
from outrider.engine import drafting
from outrider.engine.commit import Halt, commit
from outrider.engine.drafting import NO_DRAFT
from outrider.engine.outputs import EmittedToken
from outrider.engine.rules import Rule, coins, reads_laws, verify
from outrider.engine.sequence import ReadPrompt, Request, Sequence
from outrider.engine.text import Detokenizer, TextAssembler
from outrider.errors import NumericalError, OutriderError
from outrider.sampling import LawShaper, TargetLaw, TokenLogprobs
from outrider.sampling.target_law import plain_law, token_logprobs
from outrider.types import Proposal, TreeDraft, Verdict
from outrider.verification import CoinSource, Purpose

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
        num_speculative_tokens: The most draft tokens of a sequence in a round, after one another.
        max_tree_tokens: The most of them in all, if they branch.
        rule: How drafts of requests that are not greedy are verified; see :mod:`outrider.engine.rules`.
    """

    target: Backend
    vocab_size: int
    eos_ids: frozenset[int]
    detokenizer: Detokenizer
    drafter: Drafter | None = None
    num_speculative_tokens: int = 0
    max_tree_tokens: int = 0
    rule: Rule = "auto"

    def read(self, request: Request) -> ReadPrompt:
        """Feed a request's prompt but for its last token, for answers that are to share it."""
        cache_id = self.target.open_sequence()
        try:
            return ReadPrompt(cache_id, self._read(cache_id, request), None)
        except NumericalError as error:
            return ReadPrompt(cache_id, None, error)

    def forget(self, prompt: ReadPrompt) -> None:
        """Free what reading a prompt has left; its answers go on."""
        self.target.close_sequence(prompt.cache_id)

    def open(self, request: Request, prompt: ReadPrompt | None = None) -> Sequence:
        """Return the sequence that will answer a request, ready for its first round, or ended by an error.

        Args:
            request: What to answer.
            prompt: Its prompt, if that has been read.
        """
        prompt_ids = list(request.prompt_ids)
        if prompt is None and request.params.prompt_logprobs is not None:
            prompt = self.read(request)
            cache_id = prompt.cache_id
        else:
            cache_id = self.target.open_sequence() if prompt is None else self.target.fork(prompt.cache_id)
        sequence = Sequence(
            request=request,
            cache_id=cache_id,
            max_length=min(len(prompt_ids) + request.params.max_tokens, self.target.max_length),
            text=TextAssembler(self.detokenizer, request.params.stop),
            coins=CoinSource(request.seed, request.choice),
            shaper=LawShaper(request.compiled, prompt_ids),
            token_ids=prompt_ids,
            prompt_logprobs=None if prompt is None else prompt.logprobs,
        )
        if prompt is not None and prompt.error is not None:
            sequence.fail(prompt.error)
        return sequence

    def close(self, sequence: Sequence) -> None:
        """Free what a sequence holds in the target and in the drafter."""
        self.target.close_sequence(sequence.cache_id)
        if self.drafter is not None:
            drafting.release(self.drafter, sequence)

    def step(self, sequences: list[Sequence]) -> list[tuple[EmittedToken, ...]]:
        """Run one round of each sequence and return what each emitted: at least one token, but for an error."""
        drafts = self._draft(sequences)
        batch = [self._rows(sequence, draft) for sequence, draft in zip(sequences, drafts, strict=True)]
        logits = self.target.forward(batch)[:, : self.vocab_size]
        emitted = []
        for sequence, draft, rows in zip(sequences, drafts, batch, strict=True):
            law = TargetLaw(logits[: rows.num_logits], sequence.shaper, draft)
            logits = logits[rows.num_logits :]
            verdict = self._verify(sequence, draft, law)
            emitted.append(commit(sequence, draft, verdict, law, self.eos_ids))
            if rows.parents is not None:
                pending = len(rows.token_ids) - len(draft)
                kept = [*range(pending), *(pending + node for node in verdict.path)]
                self.target.keep_path(sequence.cache_id, kept)
            self.target.crop(sequence.cache_id, len(sequence.token_ids) - 1)
            if self.drafter is not None and len(draft) and not isinstance(verdict, Halt):
                drafting.observe(self.drafter, sequence, verdict)
        return emitted

    def _verify(self, sequence: Sequence, draft: Proposal, law: TargetLaw) -> Verdict | Halt:
        try:
            return verify(sequence, draft, law, self.rule)
        except OutriderError as error:
            # What is asked of the target last is what raises; whatever comes before it had been accepted.
            return Halt(draft.path(law.last_row), error)

    def _draft(self, sequences: list[Sequence]) -> list[Proposal]:
        """Return a draft per sequence. The first round of a sequence has none: its first token should not wait."""
        drafts: list[Proposal] = [NO_DRAFT] * len(sequences)
        asked = [
            index
            for index, sequence in enumerate(sequences)
            if not sequence.is_new and sequence.is_drafting and self._room(sequence) > 0
        ]
        if self.drafter is None or not asked:
            return drafts
        proposed = drafting.propose(
            self.drafter,
            [sequences[index] for index in asked],
            self._draft_request,
            vocab_size=self.vocab_size,
            reads_laws=lambda sequence: reads_laws(sequence.params, self.rule),
        )
        for index, draft in zip(asked, proposed, strict=True):
            drafts[index] = draft
        return drafts

    def _room(self, sequence: Sequence) -> int:
        """Return how many draft tokens are worth verifying: the token after them must have its place, too."""
        return min(self.num_speculative_tokens, sequence.num_remaining - 1)

    def _draft_request(self, sequence: Sequence) -> DraftRequest:
        return DraftRequest(
            request_id=sequence.request.request_id,
            context_ids=sequence.token_ids,
            max_tokens=self._room(sequence),
            shaper=sequence.shaper,
            coins=coins(sequence, Purpose.DRAFT, self.rule),
            max_tree_tokens=min(self.max_tree_tokens, self.target.max_length - len(sequence.token_ids)),
            prediction_ids=sequence.request.prediction_ids,
        )

    def _rows(self, sequence: Sequence, draft: Proposal) -> Rows:
        """Return what a sequence feeds: logits are wanted at every draft token and before the first."""
        unfed = sequence.token_ids[self.target.length(sequence.cache_id) :]
        pending = feed_all_but_last_piece(self.target, sequence.cache_id, unfed)
        parents = None
        if isinstance(draft, TreeDraft):
            parents = [*range(-1, len(pending) - 1), *(parent + len(pending) for parent in draft.parents)]
        return Rows(sequence.cache_id, [*pending, *draft.token_ids], len(draft) + 1, parents)

    def _read(self, cache_id: int, request: Request) -> list[TokenLogprobs | None] | None:
        """Feed a prompt but for its last token; return how likely each of its tokens is, if that is asked for.

        Raises:
            NumericalError: The target's logits there are not numbers, and somebody asked.
        """
        prompt_ids, num_top = request.prompt_ids[:-1], request.params.prompt_logprobs
        logprobs: list[TokenLogprobs | None] = [None]
        for start in range(0, len(prompt_ids), _PROMPT_ROWS if num_top is not None else PIECE):
            if num_top is None:
                self.target.forward([Rows(cache_id, prompt_ids[start : start + PIECE], num_logits=0)])
                continue
            fed = prompt_ids[start : start + _PROMPT_ROWS]
            logits = self.target.forward([Rows(cache_id, fed, num_logits=len(fed))])
            for row, next_id in zip(logits, request.prompt_ids[start + 1 :], strict=False):
                logprobs.append(token_logprobs(plain_law(row[: self.vocab_size]), next_id, num_top))
        return None if num_top is None else logprobs
