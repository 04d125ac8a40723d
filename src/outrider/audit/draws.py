"""Draws of the next few tokens after a prefix, by the engine itself: drafting, scoring, verifying, committing.

An answer's first round has no draft, so that its first token need not wait. A draw is therefore opened one token before
the prefix's end, and that token is committed as if a first round had emitted it; every round after that is a drafted
one. All draws of a prefix share one reading of it.

No round drafts more than its answer has room for, so a draw that ended after a few tokens would never meet a draft as
long as a user's. Some draws are therefore full ones: they have room for whole drafts in every round, and go on until
the round is over in which the last token that was asked for is emitted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from outrider.backends.base import Rows
from outrider.backends.prefill import feed_all_but_last_piece
from outrider.drafters.base import Drafter, DraftRequest
from outrider.engine.commit import commit
from outrider.engine.drafting import NO_DRAFT
from outrider.engine.outputs import Method
from outrider.engine.sequence import Request
from outrider.engine.sequence import Sequence as Answer
from outrider.engine.step import Stepper
from outrider.sampling import CompiledParams, SamplingParams, TargetLaw, Vocabulary, compile_params
from outrider.types import Outcome, Proposal, TreeDraft, Verdict, VerificationResult

_NO_LOGITS = np.empty((1, 0), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Prefix:
    """A place in a text.

    Attributes:
        name: Which, in a certificate.
        token_ids: Prompt and answer so far; at least two tokens, the last one the answer's.
    """

    name: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One drafted round of a draw.

    Attributes:
        start: How many tokens had been emitted since the prefix.
        draft: What was proposed; may be empty. Its laws, of a megabyte each, are kept in a draw's first round only.
        num_accepted: How much of it was accepted.
    """

    start: int
    draft: Proposal
    num_accepted: int


@dataclass(frozen=True, slots=True)
class Draw:
    """What one answer went on to say.

    Attributes:
        token_ids: The tokens after the prefix: as many as were asked for, and of a full draw all of its last round.
        rounds: In which they were emitted.
        method: The rule that verified drafts; None if there were none.
    """

    token_ids: tuple[int, ...]
    rounds: tuple[Round, ...]
    method: Method | None


@dataclass(slots=True)
class WatchedDrafter:
    """A drafter whose last proposal for each request is written down; it is told nothing else.

    Attributes:
        drafts: By request: how many tokens the context had, and what was proposed.
    """

    inner: Drafter
    drafts: dict[Hashable, tuple[int, Proposal]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """See :class:`~outrider.drafters.base.Drafter`."""
        return self.inner.name

    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[Proposal]:
        """See :class:`~outrider.drafters.base.Drafter`."""
        proposals = self.inner.propose(requests)
        for request, proposal in zip(requests, proposals, strict=True):
            self.drafts[request.request_id] = (len(request.context_ids), proposal)
        return proposals

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """See :class:`~outrider.drafters.base.Drafter`."""
        self.inner.observe(request_id, result)

    def release(self, request_id: Hashable) -> None:
        """See :class:`~outrider.drafters.base.Drafter`."""
        self.inner.release(request_id)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How draws are made.

    Attributes:
        stepper: The engine's, or a wrong variant of it.
        watch: Its drafter.
        params: How tokens are chosen.
        vocabulary: Of the target.
        num_tokens: That are asked for.
        full_every: Every so manieth draw is a full one, by its number.
        seed: Of all draws; each draw has coins of its own.
        lanes: How many draws are made side by side.
    """

    stepper: Stepper
    watch: WatchedDrafter
    params: SamplingParams
    vocabulary: Vocabulary
    num_tokens: int
    full_every: int
    seed: int
    lanes: int = 48

    def draw(self, prefix: Prefix, numbers: Sequence[int]) -> Iterator[Draw]:
        """Yield one draw for each number; the same number gives the same coins."""
        target, prompt_ids = self.stepper.target, prefix.token_ids[:-1]
        room = self.num_tokens + self.stepper.num_speculative_tokens
        params = [params_of_draws(self.params, num, self.vocabulary) for num in (self.num_tokens, room)]
        requests = [Request(object(), prompt_ids, one, self.seed) for one in params]
        prompt_id = target.open_sequence()
        try:
            last_piece = feed_all_but_last_piece(target, prompt_id, prompt_ids)
            target.forward([Rows(prompt_id, last_piece, num_logits=0)])
            for start in range(0, len(numbers), self.lanes):
                chosen = [
                    replace(requests[number % self.full_every == 0], request_id=object(), choice=number)
                    for number in numbers[start : start + self.lanes]
                ]
                yield from self._side_by_side(chosen, prompt_id, prefix.token_ids[-1])
        finally:
            target.close_sequence(prompt_id)

    def _side_by_side(self, requests: Sequence[Request], prompt_id: int, last_id: int) -> Iterator[Draw]:
        answers: list[Answer] = []
        try:
            for request in requests:
                answers.append(self.stepper.open(request))
                self.stepper.share(answers[-1], prompt_id, len(request.prompt_ids))
                say(answers[-1], last_id, self.stepper.eos_ids)
            rounds: dict[int, list[Round]] = {index: [] for index in range(len(answers))}
            while going := [index for index, answer in enumerate(answers) if self._is_going(answer)]:
                starts = {index: answers[index].num_output_tokens - 1 for index in going}
                self.stepper.step([answers[index] for index in going])
                for index in going:
                    rounds[index].append(self._round(answers[index], starts[index]))
            for index, answer in enumerate(answers):
                if answer.error is not None:
                    raise answer.error
                ids = tuple(answer.token_ids[len(answer.request.prompt_ids) + 1 :])
                yield Draw(ids, tuple(rounds[index]), answer.method)
        finally:
            for answer in answers:
                self.stepper.close(answer)
                self.watch.drafts.pop(answer.request.request_id, None)

    def _is_going(self, answer: Answer) -> bool:
        return answer.finish_reason is None and answer.num_output_tokens <= self.num_tokens

    def _round(self, answer: Answer, start: int) -> Round:
        """Return the round that has just been run: what it emitted but for its last token was accepted."""
        length = len(answer.request.prompt_ids) + 1 + start
        at, draft = self.watch.drafts.get(answer.request.request_id, (length, NO_DRAFT))
        if at != length or not answer.is_drafting:
            draft = NO_DRAFT
        return Round(start, _without_laws(draft) if start else draft, answer.num_output_tokens - 2 - start)


def _without_laws(draft: Proposal) -> Proposal:
    if isinstance(draft, TreeDraft):
        return replace(draft, probs=(None,) * len(draft.probs))
    return replace(draft, probs=None)


def params_of_draws(params: SamplingParams, num_tokens: int, vocabulary: Vocabulary) -> CompiledParams:
    """Return the sampling parameters of draws of a few tokens: the given ones, with nothing to end them early."""
    drawn = replace(params, max_tokens=num_tokens + 1, seed=None, stop=(), ignore_eos=True, n=1)
    return compile_params(drawn, vocabulary)


def say(answer: Answer, token_id: int, eos_ids: frozenset[int]) -> None:
    """Let an answer begin with a token, as a first round would."""
    nothing = TargetLaw(_NO_LOGITS, answer.shaper)  # nobody asks for logprobs
    commit(answer, NO_DRAFT, VerificationResult(0, token_id, Outcome.BONUS), nothing, eos_ids)
