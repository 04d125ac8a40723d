"""Runs choices on the target, to hold predictions against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.backends.metered import MeteredBackend, Pass
from outrider.engine.costs import Costs
from outrider.engine.rules import reads_laws
from outrider.engine.sequence import Request
from outrider.engine.sequence import Sequence as Answering
from outrider.engine.step import Stepper
from outrider.planner.choices import Choice
from outrider.planner.lineup import Lineup
from outrider.planner.live import live_costs
from outrider.planner.measuring import Measured, Progress
from outrider.planner.meter import Drafting, Round, Setting, metered_round, stepper_of
from outrider.planner.predict import Answered, answer_seconds
from outrider.planner.recorded import Recording


@dataclass(slots=True)
class Ran:
    """An answer of the target itself, drafted for by one choice.

    Attributes:
        id, family: Of the prompt.
        rounds: Those after the first.
        passes: The target's and the drafts' in these.
        seconds: That they took.
    """

    id: str
    family: str | None
    rounds: list[Round] = field(default_factory=list)
    passes: list[Pass] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Tokens after the first."""
        return sum(one.num_emitted for one in self.rounds)


@dataclass(frozen=True, slots=True)
class Held:
    """A choice's predictions held against what running it gave. Each mapping is by family, and by None of all.

    Attributes:
        measured: Tokens per second.
        repriced: Tokens per second as predicted, at what passes took meanwhile in the answers of other choices.
        num_differing: How many answers took other rounds than those predicted; None where chance has a say in that.
    """

    measured: Mapping[str | None, float]
    repriced: Mapping[str | None, float]
    num_differing: int | None


def validate(  # noqa: PLR0913 - what is run, on what, with what
    lineup: Lineup,
    setting: Setting,
    recordings: Sequence[Recording],
    choices: Sequence[Choice],
    costs: Costs,
    progress: Progress,
) -> Mapping[Choice, list[Ran]]:
    """Let the target answer prompts again with each choice; return the answers in the order of the recordings.

    The answers to a prompt are made at the same time, one round of one of them after the other, whoever has come least
    far first: what slows the machine down for a second slows all of them in the same part of the text.

    Args:
        lineup: The models.
        setting: How the recordings were made.
        recordings: The prompts.
        choices: To run.
        costs: Of passes, in seconds.
        progress: See :data:`~outrider.planner.measuring.Progress`.
    """
    taken: dict[Choice, list[Ran]] = {choice: [] for choice in choices}
    for number, recording in enumerate(recordings):
        longest = max(1, len(recording.answer_ids) - 1)
        draftings = {choice: lineup.drafting(choice, costs) for choice in choices}
        for least in _answer(setting, recording, draftings, taken):
            progress(f"running prompt {number + 1}", (number + min(1.0, least / longest)) / len(recordings))
    progress("run", 1.0)
    return taken


def _answer(
    setting: Setting, recording: Recording, draftings: Mapping[Choice, Drafting], taken: Mapping[Choice, list[Ran]]
) -> Iterator[int]:
    """Answer a prompt with each choice, round by round; yield how many tokens the one has that is least far."""
    target = MeteredBackend(setting.target.backend, setting.target.name, setting.clock)
    going: dict[Choice, tuple[Stepper, Answering]] = {}
    try:
        for choice, drafting in draftings.items():
            stepper = stepper_of(setting, target, drafting)
            answering = stepper.open(Request(object(), recording.prompt_ids, setting.compiled, recording.seed))
            first = next(iter(going.values()), None)
            going[choice] = stepper, answering
            if first is not None:  # the prompt is read once
                stepper.share(answering, first[1].cache_id, len(recording.prompt_ids) - 1)
            stepper.step([answering])
            taken[choice].append(Ran(recording.id, recording.family))
        while left := {choice: pair for choice, pair in going.items() if pair[1].finish_reason is None}:
            choice = min(left, key=lambda choice: taken[choice][-1].num_tokens)
            _step(setting, *left[choice], [target, *draftings[choice].backends], taken[choice][-1])
            yield taken[choice][-1].num_tokens
    finally:
        for stepper, answering in going.values():
            stepper.close(answering)


def _step(
    setting: Setting, stepper: Stepper, answering: Answering, backends: Sequence[MeteredBackend], ran: Ran
) -> None:
    done, passes = metered_round(setting, stepper, answering, backends)
    if answering.error is not None:
        raise answering.error
    ran.rounds.append(done)
    ran.passes += [*passes, *done.draft_passes]
    ran.seconds += sum(one.seconds for one in (*passes, *done.draft_passes)) + done.other_s


def hold(setting: Setting, measured: Measured, ran: Mapping[Choice, Sequence[Ran]]) -> dict[Choice, Held]:
    """Hold predictions against what running choices gave.

    A machine's speed changes in minutes, and the target's pass of one row need not change as the others do; so a
    prediction is made again at what passes of each answer's while took. They are the other choices': a model that only
    this one runs is priced by its own.

    Args:
        setting: How the answers were made.
        measured: What predictions come from.
        ran: Answers of each choice, in the order of the recordings.
    """
    held = {}
    for choice, answers in ran.items():
        predicted = measured.answers[choice]
        seconds = [_seconds(one, measured, _meanwhile(ran, choice, place)) for place, one in enumerate(predicted)]
        pairs = list(zip(predicted, answers, strict=True))
        differing = sum(_shapes(one.rounds) != _shapes(other.rounds) for one, other in pairs)
        families = dict.fromkeys([None, *(one.family for one in answers)])
        held[choice] = Held(
            {family: _rate(answers, [one.seconds for one in answers], family) for family in families},
            {family: _rate(predicted, seconds, family) for family in families},
            None if reads_laws(setting.compiled.params, choice.rule) else differing,
        )
    return held


def _meanwhile(ran: Mapping[Choice, Sequence[Ran]], choice: Choice, place: int) -> list[Pass]:
    others = [one for other, answers in ran.items() if other != choice for one in answers[place].passes]
    known = {one.model for one in others}
    return others + [one for one in ran[choice][place].passes if one.model not in known]


def _seconds(answer: Answered, measured: Measured, passes: Sequence[Pass]) -> float:
    costs = live_costs(measured.timed_costs, next(iter(measured.clocked)), passes)
    return float(answer_seconds([answer], costs)[0])


def _shapes(rounds: Sequence[Round]) -> list[tuple[int, ...]]:
    return [(one.length, one.num_draft_tokens, one.num_accepted, one.num_emitted) for one in rounds]


def _rate(answers: Sequence[Ran] | Sequence[Answered], seconds: Sequence[float], family: str | None) -> float:
    """Return tokens by seconds over the answers of a family, or over all."""
    own = np.array([family is None or one.family == family for one in answers])
    taken = float(np.asarray(seconds)[own].sum())
    return sum(one.num_tokens for one in answers if family in (None, one.family)) / taken if taken > 0 else 0.0
