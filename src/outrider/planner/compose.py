"""From what was measured to a plan: every prediction, the recommendation, and where it all comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import numpy as np

from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.planner.choices import PLAIN, Choice
from outrider.planner.document import (
    SCHEMA,
    Curve,
    Figure,
    LeftOutDraft,
    MemoryUse,
    Outcome,
    Passes,
    PassTime,
    Plan,
    PlannedModel,
    Position,
    Prompts,
    Ranks,
    Settings,
    Speed,
)
from outrider.planner.live import slower
from outrider.planner.machine import Machine
from outrider.planner.measuring import Clocked, Measured
from outrider.planner.memory import Memory
from outrider.planner.passes import BATCHES
from outrider.planner.predict import (
    Answered,
    Estimate,
    acceptance_by_position,
    ratio,
    shares,
    speed,
    speed_and_speedup,
)
from outrider.planner.ranks import NUM_RANKS, PositionRanks
from outrider.planner.validate import Held, Ran

# A draft has to promise so much more than plain decoding to be worth the trouble and the doubt.
LEAST_SPEEDUP = 1.02
_DEEPEST = 16  # place of a draft whose acceptance is listed


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a plan comes from, beside what was measured."""

    created: str
    machine: Machine
    target: PlannedModel
    drafts: tuple[PlannedModel, ...]
    settings: Settings
    num_prompts: int
    left_out: tuple[LeftOutDraft, ...]


def compose(origin: Origin, measured: Measured, memory: Mapping[tuple[str, ...], Memory], seed: int) -> Plan:
    """Return the plan.

    Args:
        origin: See there.
        measured: See there.
        memory: What a process takes, by the drafts of a choice.
        seed: Draws prompts anew for intervals.
    """
    plain, costs = measured.answers[PLAIN], measured.costs
    outcomes = tuple(_outcome(choice, answers, plain, costs, seed) for choice, answers in measured.answers.items())
    families = sorted({one.family for one in plain if one.family is not None})
    eligible = [not one.drafts or one.rule == origin.settings.rule for one in outcomes]
    best = _best([one.speed.speedup for one in outcomes], eligible)
    recordings = measured.recordings
    return Plan(
        outrider_plan=SCHEMA,
        created=origin.created,
        machine=origin.machine,
        target=origin.target,
        drafts=origin.drafts,
        settings=origin.settings,
        prompts=Prompts(
            given=origin.num_prompts,
            measured=len(recordings),
            tokens=sum(len(one.answer_ids) for one in recordings),
            families={family: sum(one.family == family for one in recordings) for family in families},
        ),
        passes=_passes(measured),
        is_noisy=any(one.is_noisy for one in measured.clocked.values()),
        choices=outcomes,
        recommended=best,
        by_family={family: _best([one.families[family].speedup for one in outcomes], eligible) for family in families},
        ranks={name: _ranks(answers, seed) for name, answers in measured.ranks.items() if any(answers)},
        memory=_memory(memory[outcomes[best].drafts]),
        left_out=origin.left_out,
    )


def with_run(plan: Plan, measured: Measured, ran: Mapping[Choice, Sequence[Ran]], held: Mapping[Choice, Held]) -> Plan:
    """Return a plan with what running some of its choices gave.

    Args:
        plan: Without.
        measured: What it was composed from.
        ran: Answers by choice.
        held: The same held against the predictions.
    """
    numbers = {choice: number for number, choice in enumerate(measured.answers)}
    choices = list(plan.choices)
    for choice, one in held.items():
        families = [family for family in one.measured if family is not None]
        choices[numbers[choice]] = replace(
            choices[numbers[choice]],
            measured_tokens_per_s=one.measured[None],
            measured_families={family: one.measured[family] for family in families},
            repriced_tokens_per_s=one.repriced[None],
            repriced_families={family: one.repriced[family] for family in families},
            differing_answers=one.num_differing,
        )
    costs, target = measured.costs, plan.passes[0].model
    passes = [one for answers in ran.values() for answer in answers for one in answer.passes]
    drifted = tuple(
        replace(
            one,
            drift=slower(
                costs.target if one.model == target else costs.drafts[one.model],
                [seen for seen in passes if seen.model == one.model],
            ),
        )
        for one in plan.passes
    )
    return replace(plan, choices=tuple(choices), passes=drifted)


def _best(speedups: Sequence[Figure], eligible: Sequence[bool]) -> int:
    """Return the number of the choice to take: plain decoding, which comes first, unless one is clearly faster.

    That is one whose interval lies above 1, where there are prompts enough for an interval. Rules that the user did not
    ask for are there to be compared, not to be recommended.
    """
    clear = [
        may and one.value > LEAST_SPEEDUP and (one.low is None or one.low > 1)
        for one, may in zip(speedups, eligible, strict=True)
    ]
    best = int(np.argmax([one.value if is_clear else -np.inf for one, is_clear in zip(speedups, clear, strict=True)]))
    return best if clear[best] else 0


def _outcome(
    choice: Choice, answers: Sequence[Answered], plain: Sequence[Answered], costs: Costs, seed: int
) -> Outcome:
    rounds = [one for answer in answers for one in answer.rounds]
    depth = max((one.num_draft_tokens for one in rounds), default=0)
    if choice.draft_tree:
        depth = min(depth, choice.num_speculative_tokens or depth)
    positions = acceptance_by_position(answers, min(depth, _DEEPEST), np.random.default_rng(seed))
    families = {one.family for one in plain if one.family is not None}
    return Outcome(
        name=choice.name,
        drafts=choice.drafts,
        num_speculative_tokens=choice.num_speculative_tokens,
        draft_tree=choice.draft_tree,
        rule=choice.rule,
        tokens_per_round=fmean(one.num_emitted for one in rounds) if rounds else 1.0,
        drafted_per_round=fmean(one.num_draft_tokens for one in rounds) if rounds else 0.0,
        positions=tuple(Position(_figure(one), tested) for one, tested in positions),
        speed=_speed(answers, plain, costs, seed),
        families={
            family: _speed(
                [one for one in answers if one.family == family],
                [one for one in plain if one.family == family],
                costs,
                seed,
            )
            for family in sorted(families)
        },
        side_by_side={str(count): speed(answers, costs, count) for count in BATCHES},
        shares=dict(shares(answers, costs)),
    )


def _speed(answers: Sequence[Answered], plain: Sequence[Answered], costs: Costs, seed: int) -> Speed:
    if not any(one.num_tokens for one in plain):  # answers of one token have no rate
        return Speed(Figure(0.0), Figure(1.0))
    rate, gain = speed_and_speedup(answers, plain, costs, np.random.default_rng(seed))
    return Speed(_figure(rate), _figure(gain))


def _figure(estimate: Estimate) -> Figure:
    return Figure(estimate.value, estimate.low, estimate.high)


def _ranks(answers: Sequence[Sequence[PositionRanks]], seed: int) -> Ranks:
    """Return means over positions, with an interval over answers."""
    positions = [one for answer in answers for one in answer]
    by_rank = tuple(fmean(one.by_rank[rank] for one in positions) for rank in range(NUM_RANKS))
    sums = np.array([sum(one.overlap for one in answer) for answer in answers])
    counts = np.array([len(answer) for answer in answers], np.float64)
    return Ranks(by_rank, _figure(ratio(sums, counts, np.random.default_rng(seed))))


def _passes(measured: Measured) -> tuple[Passes, ...]:
    target, costs = next(iter(measured.clocked)), measured.timed_costs
    return tuple(
        _timed(name, one, costs.target if name == target else costs.drafts[name], measured.slower(name))
        for name, one in measured.clocked.items()
    )


def _timed(name: str, clocked: Clocked, curve: PassCosts, slower: float) -> Passes:
    timed = tuple(
        PassTime(one.shape.rows, one.shape.context, one.shape.sequences, one.seconds, one.low, one.high, one.count)
        for one in clocked.timed
    )
    return Passes(name, timed, Curve(curve.points, curve.per_context, curve.per_row_context), clocked.spread, slower)


def _memory(memory: Memory) -> MemoryUse:
    models = {one.name: {name: value for name, value in asdict(one).items() if name != "name"} for one in memory.models}
    return MemoryUse(memory.process, models, memory.total)
