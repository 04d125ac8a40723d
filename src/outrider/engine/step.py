"""One round of speculative decoding over any number of sequences: draft, score, verify, commit.

Knows nothing of prompts, requests or time. A sequence without a draft takes part like any other: its round is a plain
decoding step. What goes wrong with one sequence ends that sequence.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import PIECE, feed_all_but_last_piece
from outrider.drafters.base import Drafter, DraftRequest
from outrider.engine import drafting
from outrider.engine.commit import Halt, commit
from outrider.engine.drafting import NO_DRAFT
from outrider.engine.outputs import EmittedToken
from outrider.engine.rules import coins, reads_laws, verify
from outrider.engine.sequence import Request, Rule, Sequence
from outrider.engine.text import Detokenizer, TextAssembler
from outrider.errors import OutriderError
from outrider.sampling import LawShaper, TargetLaw
from outrider.sampling.target_law import plain_law, token_logprobs
from outrider.types import Logits, Proposal, TreeDraft, Verdict
from outrider.verification import CoinSource, Purpose

# Rows of logits at a time where each position of a prompt is looked at: 20 MB for a vocabulary of 150,000.
PROMPT_ROWS = 32


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be in a round, lest it take too long; None is no limit.

    Attributes:
        draft_reading: How many tokens of contexts the drafter may read, of all together; where it must read more it
            drafts later.
        draft_tokens: The most draft tokens of each sequence.
        rows: The most draft tokens and tokens read in all: where much is drafted, less is read.
    """

    draft_reading: int | None = None
    draft_tokens: int | None = None
    rows: int | None = None


NO_LIMITS = Limits()


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

    @property
    def max_draft_tokens(self) -> int:
        """The most tokens beside those committed that a round may put into a sequence's cache."""
        return max(self.num_speculative_tokens, self.max_tree_tokens)

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
            prompt_logprobs=None if request.params.prompt_logprobs is None else [None],
        )

    def share(self, sequence: Sequence, cache_id: int, length: int) -> None:
        """Let a sequence begin with the first tokens that another cache holds, which are its own first, too."""
        fork_id = self.target.fork(cache_id)
        self.target.crop(fork_id, length)
        self.target.close_sequence(sequence.cache_id)
        sequence.cache_id = fork_id

    def unload(self, sequence: Sequence) -> None:
        """Free what a sequence holds in the target and in the drafter; it may go on, and reads its tokens again."""
        cache_id = self.target.open_sequence()
        self.close(sequence)
        sequence.cache_id = cache_id
        if sequence.is_prompt_unread:  # what was looked at of it is read, and looked at, again
            sequence.prompt_logprobs = [None]

    def num_unread(self, sequence: Sequence) -> int:
        """Return how many of its tokens the target's cache lacks: one between two rounds."""
        return len(sequence.token_ids) - self.target.length(sequence.cache_id)

    def close(self, sequence: Sequence) -> None:
        """Free what a sequence holds in the target and in the drafter."""
        self.target.close_sequence(sequence.cache_id)
        if self.drafter is not None:
            drafting.release(self.drafter, sequence)

    def step(
        self,
        sequences: Several[Sequence],
        reading: Several[tuple[Sequence, int]] = (),
        limits: Limits = NO_LIMITS,
    ) -> list[tuple[EmittedToken, ...]]:
        """Run one round of each sequence and return what each emitted: at least one token, but for an error.

        Args:
            sequences: Those that emit.
            reading: Others, and how many more of their tokens, never the last, the target reads in the same pass, if
                there is room.
            limits: Of the round.
        """
        drafts = self._draft(sequences, limits, sum(count for _, count in reading))
        if limits.rows is not None:
            reading = _within(reading, limits.rows - sum(map(len, drafts)))
        batch = [self._rows(sequence, draft) for sequence, draft in zip(sequences, drafts, strict=True)]
        pieces = [self._piece(sequence, count) for sequence, count in reading]
        logits = self.target.forward([*batch, *pieces])[:, : self.vocab_size]
        emitted = []
        for sequence, draft, rows in zip(sequences, drafts, batch, strict=True):
            try:
                emitted.append(self._finish(sequence, draft, rows, logits[: rows.num_logits]))
            except Exception as error:  # noqa: BLE001 - of whatever kind, it is this answer's alone
                sequence.fail(error)
                emitted.append(())
            logits = logits[rows.num_logits :]
        for (sequence, _), rows in zip(reading, pieces, strict=True):
            self._look(sequence, logits[: rows.num_logits])
            logits = logits[rows.num_logits :]
        return emitted

    def _finish(self, sequence: Sequence, draft: Proposal, rows: Rows, logits: Logits) -> tuple[EmittedToken, ...]:
        """Verify and commit a sequence's round, and roll its cache back."""
        law = TargetLaw(logits, sequence.shaper, draft)
        verdict = self._verify(sequence, draft, law)
        emitted = commit(sequence, draft, verdict, law, self.eos_ids)
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
            return verify(sequence, draft, law, self._rule(sequence))
        except OutriderError as error:
            # What is asked of the target last is what raises; whatever comes before it had been accepted.
            return Halt(draft.path(law.last_row), error)

    def _rule(self, sequence: Sequence) -> Rule:
        return sequence.request.speculation.rule or self.rule

    def _draft(self, sequences: Several[Sequence], limits: Limits, num_read: int) -> list[Proposal]:
        """Return a draft per sequence, in a round that reads so many tokens of others.

        The first round of a sequence has none: its first token should not wait.
        """
        drafts: list[Proposal] = [NO_DRAFT] * len(sequences)
        asked = [
            index
            for index, sequence in enumerate(sequences)
            if not sequence.is_new and sequence.is_drafting and self._room(sequence) > 0
        ]
        if self.drafter is None or not asked:
            return drafts
        others = [sequence for index, sequence in enumerate(sequences) if index not in asked]
        num_other_rows = num_read + sum(min(PIECE, self._num_unfed(sequence)) for sequence in others)
        proposed = drafting.propose(
            self.drafter,
            [sequences[index] for index in asked],
            lambda sequence: self._draft_request(sequence, limits, num_other_rows),
            vocab_size=self.vocab_size,
            reads_laws=lambda sequence: reads_laws(sequence.params, self._rule(sequence)),
        )
        for index, draft in zip(asked, proposed, strict=True):
            drafts[index] = draft
        return drafts

    def _num_unfed(self, sequence: Sequence) -> int:
        return len(sequence.token_ids) - self.target.length(sequence.cache_id)

    def _room(self, sequence: Sequence) -> int:
        """Return how many draft tokens are worth verifying: the token after them must have its place, too."""
        wanted = sequence.request.speculation.num_speculative_tokens
        limit = self.num_speculative_tokens if wanted is None else min(wanted, self.num_speculative_tokens)
        return min(limit, sequence.num_remaining - 1)

    def _draft_request(self, sequence: Sequence, limits: Limits, num_other_rows: int) -> DraftRequest:
        room = self._room(sequence)
        tree_room = min(self.max_tree_tokens, self.target.max_length - len(sequence.token_ids))
        if limits.draft_tokens is not None:
            room, tree_room = min(room, limits.draft_tokens), min(tree_room, limits.draft_tokens)
        return DraftRequest(
            request_id=sequence.request.request_id,
            context_ids=sequence.token_ids,
            max_tokens=room,
            shaper=sequence.shaper,
            coins=coins(sequence, Purpose.DRAFT, self._rule(sequence)),
            max_tree_tokens=tree_room,
            prediction_ids=sequence.request.prediction_ids,
            max_read_tokens=limits.draft_reading,
            drafter=sequence.request.speculation.drafter,
            num_remaining=sequence.num_remaining,
            num_other_rows=num_other_rows,
        )

    def _rows(self, sequence: Sequence, draft: Proposal) -> Rows:
        """Return what a sequence feeds: logits are wanted at every draft token and before the first."""
        unfed = sequence.token_ids[self.target.length(sequence.cache_id) :]
        pending = feed_all_but_last_piece(self.target, sequence.cache_id, unfed)
        parents = None
        if isinstance(draft, TreeDraft):
            parents = [*range(-1, len(pending) - 1), *(parent + len(pending) for parent in draft.parents)]
        return Rows(sequence.cache_id, [*pending, *draft.token_ids], len(draft) + 1, parents)

    def _piece(self, sequence: Sequence, count: int) -> Rows:
        """Return the next tokens of a sequence for the target to read, with logits only if somebody asked."""
        start = self.target.length(sequence.cache_id)
        token_ids = sequence.token_ids[start : start + count]
        return Rows(sequence.cache_id, token_ids, num_logits=count if sequence.is_prompt_unread else 0)

    def _look(self, sequence: Sequence, logits: Logits) -> None:
        """Note how likely the tokens of a prompt are that follow those just read."""
        seen, num_top = sequence.prompt_logprobs, sequence.params.prompt_logprobs
        if seen is None or num_top is None:
            return
        try:
            for row in logits:
                seen.append(token_logprobs(plain_law(row), sequence.token_ids[len(seen)], num_top))
        except Exception as error:  # noqa: BLE001 - such as logits that are not numbers; it is this answer's alone
            sequence.fail(error)


def _within(reading: Several[tuple[Sequence, int]], num_rows: int) -> list[tuple[Sequence, int]]:
    """Return what of some reading fits into so many rows, the first first."""
    fitting = []
    for sequence, count in reading:
        if num_rows > 0:
            fitting.append((sequence, min(count, num_rows)))
            num_rows -= count
    return fitting
