"""Measures: times passes, lets the target answer each prompt once, and replays every choice on the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

import numpy as np

from outrider.backends.base import Backend
from outrider.backends.metered import Pass
from outrider.backends.timing import PassShape
from outrider.engine.costs import Costs
from outrider.planner.choices import Choice
from outrider.planner.lineup import Lineup
from outrider.planner.live import live_costs, slower
from outrider.planner.meter import Prompted, Setting, record, replay
from outrider.planner.passes import (
    BATCHES,
    DRAFT_CHECKED,
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
# What drafts while the target answers: costs nothing, and lets passes of several rows be seen.
_LOOKUP = Choice(("ngram",), 16, rule="coupled")


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
        live: Passes among rounds.
        beside_s: By how many seconds rounds of the target spend more beside passes than rounds replayed on its text:
            after a pass everything else has left the processor's caches, but its logits need not be made.
        recordings: Of the prompts that there was time for.
        answers: Of each choice, in the order of the recordings.
        ranks: Of each draft model with the target's tokens, by position over all answers.
    """

    clocked: Mapping[str, Clocked]
    timed_costs: Costs
    live: list[Pass] = field(default_factory=list)
    beside_s: list[float] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    answers: dict[Choice, list[Answered]] = field(default_factory=dict)
    ranks: dict[str, list[list[PositionRanks]]] = field(default_factory=dict)

    def slower(self, model: str) -> float:
        """Return how much longer a model's passes take among rounds, in all, than one after the other."""
        target = next(iter(self.clocked))
        curve = self.timed_costs.target if model == target else self.timed_costs.drafts[model]
        return slower(curve, [one for one in self.live if one.model == model])

    @property
    def costs(self) -> Costs:
        """What passes cost among rounds, in seconds."""
        return live_costs(self.timed_costs, next(iter(self.clocked)), self.live)

    def add_beside(self) -> None:
        """Give the rounds replayed the time beside passes that those of the target have."""
        more = float(np.median(self.beside_s)) if self.beside_s else 0.0
        for answers in self.answers.values():
            for place, one in enumerate(answers):
                rounds = tuple(replace(done, other_s=max(0.0, done.other_s + more)) for done in one.rounds)
                answers[place] = replace(one, rounds=rounds)


def time_models(lineup: Lineup, contexts: Sequence[int], progress: Progress) -> tuple[dict[str, Clocked], Costs]:
    """Time passes of a target and its draft models.

    Args:
        lineup: The models.
        contexts: Tokens in the cache, beside none; what does not fit a model is left out.
        progress: See :data:`Progress`.

    Returns:
        What was timed, by model, and the cost of passes in seconds.
    """
    target, limit = lineup.target, lineup.target.backend.max_length
    backends: dict[str, tuple[Backend, list[PassShape]]] = {
        target.name: (target.backend, shapes_of(TARGET_ROWS, contexts, limit, BATCHES))
    }
    for one in lineup.models.values():
        shapes = shapes_of(DRAFT_ROWS, contexts, one.model.backend.max_length, checked=DRAFT_CHECKED)
        backends[one.model.name] = one.model.backend, shapes
    clocked = {}
    for number, (name, (backend, shapes)) in enumerate(backends.items()):
        progress(f"timing passes of {name}", number / len(backends))
        timed = time_passes(backend, shapes, lineup.clock)
        clocked[name] = Clocked(tuple(timed), typical_spread(timed))
    progress("passes timed", 1.0)
    curves = {name: fitted(one.timed) for name, one in clocked.items()}
    return clocked, Costs(curves.pop(target.name), curves)


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
    measured.add_beside()
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
    lookup = lineup.drafting(_LOOKUP, measured.timed_costs)
    recording, recorded = record(setting, prompt, seed, lookup)
    again = replay(setting, recording, lineup.drafting(_LOOKUP, measured.timed_costs))
    for (done, passes), replayed in zip(recorded, again, strict=True):
        measured.live += passes
        measured.beside_s.append(done.other_s - replayed.other_s)
    measured.recordings.append(recording)
    for number, (choice, answers) in enumerate(measured.answers.items(), start=1):
        yield number / steps, choice.name
        rounds = replay(setting, recording, lineup.drafting(choice, measured.timed_costs))
        measured.live += [one for done in rounds for one in done.draft_passes]
        answers.append(Answered(prompt.id, prompt.family, tuple(rounds)))
    yield (steps - 1) / steps, "acceptance by rank"
    for name, one in lineup.models.items():
        if one.has_targets_tokens:
            measured.ranks.setdefault(name, []).append(ranks(setting, recording, one.model))


def _contexts(longest: int, limit: int) -> list[int]:
    """Return at which contexts to time passes, beside empty caches: half of what the prompts come to, and all of it."""
    room = min(longest, limit) - 64
    return sorted({context for context in (room // 2, room) if context >= 128})
