"""Measures: times passes, lets the target answer each prompt once, and replays every choice on the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from outrider.backends.base import Backend
from outrider.backends.metered import MeteredBackend, Pass
from outrider.engine.costs import Costs
from outrider.planner.choices import Choice
from outrider.planner.lineup import Lineup
from outrider.planner.meter import Prompted, Setting, record, replay
from outrider.planner.passes import (
    BATCHES,
    DRAFT_ROWS,
    MAX_SPREAD,
    TARGET_ROWS,
    Timed,
    fitted,
    shapes_of,
    time_passes,
    typical_spread,
)
from outrider.planner.predict import Answered
from outrider.planner.ranks import PositionRanks, ranks
from outrider.planner.recorded import Recording

# Told what is being done, and how much of it is done, from 0 to 1.
Progress = Callable[[str, float], None]
_LOOKUP = Choice(("ngram",), 16)
_FEW_ROWS = 17


@dataclass(frozen=True, slots=True)
class Clocked:
    """What was timed of a model, and what follows for a pass of any shape."""

    timed: tuple[Timed, ...]
    spread: float

    @property
    def is_noisy(self) -> bool:
        """Whether the machine was too restless to time passes well, even again and again."""
        return self.spread > MAX_SPREAD


@dataclass(slots=True)
class Measured:
    """Everything that predictions are made of.

    Attributes:
        clocked: Passes by model, the target first.
        timed_costs: What passes cost by those, in seconds.
        live: By model, seconds that passes among rounds took, and what the timed ones say of them, added up.
        recordings: Of the prompts that there was time for.
        answers: Of each choice, in the order of the recordings.
        ranks: Of each draft model with the target's tokens, by position over all answers.
    """

    clocked: Mapping[str, Clocked]
    timed_costs: Costs
    live: dict[str, tuple[float, float]] = field(default_factory=dict)
    recordings: list[Recording] = field(default_factory=list)
    answers: dict[Choice, list[Answered]] = field(default_factory=dict)
    ranks: dict[str, list[list[PositionRanks]]] = field(default_factory=dict)

    def slower(self, model: str) -> float:
        """Return how much longer a model's passes take among rounds, in all, than one after the other, typically."""
        seconds, expected = self.live.get(model, (0.0, 0.0))
        return seconds / expected if seconds > 0 else 1.0

    @property
    def costs(self) -> Costs:
        """What passes cost among rounds, in seconds."""
        target, *drafts = self.clocked
        return Costs(
            self.timed_costs.target.in_units_of(1 / self.slower(target)),
            {name: self.timed_costs.drafts[name].in_units_of(1 / self.slower(name)) for name in drafts},
        )

    def observe(self, passes: Iterable[Pass]) -> None:
        """Take note of passes among rounds; those over many rows, which read prompts, are left out."""
        target = next(iter(self.clocked))
        for one in passes:
            curve = self.timed_costs.target if one.model == target else self.timed_costs.drafts[one.model]
            if one.rows <= _FEW_ROWS:
                seconds, expected = self.live.get(one.model, (0.0, 0.0))
                self.live[one.model] = seconds + one.seconds, expected + curve.at(one.rows, one.length)


def time_models(lineup: Lineup, contexts: Sequence[int], progress: Progress) -> tuple[dict[str, Clocked], Costs]:
    """Time passes of a target and its draft models.

    Args:
        lineup: The models.
        contexts: Tokens in the cache, beside none; what does not fit a model is left out.
        progress: See :data:`Progress`.

    Returns:
        What was timed, by model, and the cost of passes in seconds.
    """
    backends: dict[str, tuple[Backend, Sequence[int], Sequence[int]]] = {
        lineup.target.name: (lineup.target.backend, TARGET_ROWS, BATCHES)
    }
    backends |= {one.model.name: (one.model.backend, DRAFT_ROWS, ()) for one in lineup.models.values()}
    clocked = {}
    for number, (name, (backend, rows, batches)) in enumerate(backends.items()):
        progress(f"timing passes of {name}", number / len(backends))
        shapes = shapes_of(rows, contexts, backend.max_length, batches)
        timed = time_passes(backend, shapes, lineup.clock)
        clocked[name] = Clocked(tuple(timed), typical_spread(timed))
    progress("passes timed", 1.0)
    curves = {name: fitted(one.timed) for name, one in clocked.items()}
    target = curves.pop(lineup.target.name)
    return clocked, Costs(target, curves)


def in_turns(prompts: Sequence[Prompted]) -> list[Prompted]:
    """Return prompts such that the first few are of as many families as there are."""
    families: dict[str | None, list[Prompted]] = {}
    for one in prompts:
        families.setdefault(one.family, []).append(one)
    return [one for turn in zip_longest(*families.values()) for one in turn if one is not None]


def measure(  # noqa: PLR0913 - what is measured, on what, with what
    lineup: Lineup,
    setting: Setting,
    prompts: Sequence[Prompted],
    choices: Sequence[Choice],
    *,
    seed: int,
    budget_s: float,
    progress: Progress,
) -> Measured:
    """Measure every choice on as many prompts as there is time for, at least one.

    Args:
        lineup: The models.
        setting: How text is made.
        prompts: At least one; families take turns.
        choices: Plain decoding first.
        seed: Of the noise that draws answers.
        budget_s: Seconds for answers and replays, by the line-up's clock. A prompt that has been begun is finished.
        progress: See :data:`Progress`.
    """
    longest = max(len(one.token_ids) for one in prompts) + setting.compiled.params.max_tokens
    clocked, costs = time_models(lineup, _contexts(longest, lineup.target.backend.max_length), progress)
    measured = Measured(clocked, costs, answers={choice: [] for choice in choices})
    started_at = lineup.clock()
    ordered = in_turns(prompts)
    for number, prompt in enumerate(ordered):
        spent = lineup.clock() - started_at
        if number and spent + spent / number > budget_s:
            break
        for done, what in _measure_one(lineup, setting, prompt, measured, seed + number):
            share = (number + done) / len(ordered)
            progress(
                f"prompt {number + 1} of {len(ordered)}: {what}", max(share, spent / budget_s if budget_s else 0.0)
            )
    progress("measured", 1.0)
    return measured


def _measure_one(
    lineup: Lineup, setting: Setting, prompt: Prompted, measured: Measured, seed: int
) -> Iterator[tuple[float, str]]:
    """Measure all choices on one prompt; yield before each step what it is, and how far it comes."""
    steps = len(measured.answers) + 2
    yield 0.0, "the target answers"
    params = setting.compiled.params
    seed = seed if params.seed is None else params.seed
    target = MeteredBackend(setting.target.backend, setting.target.name, setting.clock)
    metered = replace(setting, target=replace(setting.target, backend=target))
    recording = record(metered, prompt, seed, lineup.drafting(_LOOKUP, measured.timed_costs))
    measured.observe(target.passes)
    measured.recordings.append(recording)
    for number, (choice, answers) in enumerate(measured.answers.items(), start=1):
        yield number / steps, choice.name
        rounds = replay(setting, recording, lineup.drafting(choice, measured.timed_costs))
        measured.observe(one for done in rounds for one in done.draft_passes)
        answers.append(Answered(prompt.id, prompt.family, tuple(rounds)))
    yield (steps - 1) / steps, "acceptance by rank"
    for name, one in lineup.models.items():
        if one.has_targets_tokens:
            measured.ranks.setdefault(name, []).append(ranks(setting, recording, one.model))


def _contexts(longest: int, limit: int) -> list[int]:
    """Return at which contexts to time passes, beside empty caches: half of what the prompts come to, and all of it."""
    room = min(longest, limit) - 64
    return sorted({context for context in (room // 2, room) if context >= 128})
