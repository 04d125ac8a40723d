"""From rounds and the price of passes to tokens per second, with an interval over prompts.

Pure: knows no models and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.planner.meter import Round

_RESAMPLES = 2000
_LEVEL = 0.95
LEAST_PROMPTS = 6  # of which an interval is told: drawn from fewer it holds the truth far less often than it says
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and where it lies, over prompts like these.

    Attributes:
        value: From all prompts.
        low, high: An interval of 95%, see :func:`ratio`; None of fewer than six prompts, which tell too little.
    """

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The rounds of one answer.

    Attributes:
        id, family: Of the prompt.
        rounds: Those after the first.
    """

    id: str
    family: str | None
    rounds: tuple[Round, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens after the first."""
        return sum(one.num_emitted for one in self.rounds)


def round_seconds(side_by_side: Sequence[Round], costs: Costs) -> float:
    """Return how long a pass over one round of each of several sequences takes, with its drafts.

    Draft passes of the sequences are shared from level to level, as a drafter that is asked for several drafts does.
    """
    seconds = costs.target.of([(1 + one.num_draft_tokens, one.length) for one in side_by_side])
    seconds += sum(one.other_s for one in side_by_side)
    for level in range(max(len(one.draft_passes) for one in side_by_side)):
        by_model: dict[str, list[tuple[int, int]]] = {}
        for one in side_by_side:
            if level < len(one.draft_passes):
                single = one.draft_passes[level]
                by_model.setdefault(single.model, []).append((single.rows, single.length))
        seconds += sum(costs.drafts[model].of(batch) for model, batch in by_model.items())
    return seconds


def answer_seconds(answers: Sequence[Answered], costs: Costs) -> Floats:
    """Return how long each answer takes after its first token."""
    return np.array([sum(round_seconds([one], costs) for one in answer.rounds) for answer in answers])


def speed(answers: Sequence[Answered], costs: Costs, num_sequences: int = 1) -> float:
    """Return tokens per second in all, where so many answers are made side by side.

    The rounds that meet are taken from as many places of the sequence of all rounds, evenly apart.
    """
    rounds = [one for answer in answers for one in answer.rounds]
    if not rounds:
        return 0.0
    apart = -(-len(rounds) // num_sequences)
    groups = [
        [rounds[(place + apart * other) % len(rounds)] for other in range(num_sequences)] for place in range(apart)
    ]
    tokens = sum(one.num_emitted for group in groups for one in group)
    return tokens / sum(round_seconds(group, costs) for group in groups)


def speed_and_speedup(
    answers: Sequence[Answered], plain: Sequence[Answered], costs: Costs, rng: np.random.Generator
) -> tuple[Estimate, Estimate]:
    """Return tokens per second, and that by plain decoding's on the same prompts, which differ less than either.

    Args:
        answers: Of a choice.
        plain: Of plain decoding, to the same prompts in the same order.
        costs: Of passes, in seconds.
        rng: Draws prompts anew.
    """
    tokens = np.array([one.num_tokens for one in answers], np.float64)
    ours, theirs = answer_seconds(answers, costs), answer_seconds(plain, costs)
    return ratio(tokens, ours, rng), ratio(theirs, ours, rng)


def acceptance_by_position(
    answers: Sequence[Answered], depth: int, rng: np.random.Generator
) -> list[tuple[Estimate, int]]:
    """Return for each place of a draft the chance that its token is accepted, if tested, and how many were tested.

    A token is tested if those before it were accepted and the answer went on to the place after it. Places that no
    draft got to are left out.

    Args:
        answers: Of a choice.
        depth: The most draft tokens after one another.
        rng: Draws prompts anew.
    """
    places = []
    for place in range(1, depth + 1):
        tested, accepted = (
            np.array([[_tested(one, place), one.num_accepted >= place] for answer in answers for one in answer.rounds])
            .reshape(-1, 2)
            .T
        )
        owner = np.repeat(np.arange(len(answers)), [len(answer.rounds) for answer in answers])
        by_answer = [np.bincount(owner, one, len(answers)).astype(np.float64) for one in (tested, accepted & tested)]
        if not by_answer[0].any():
            break
        places.append((ratio(by_answer[1], by_answer[0], rng), int(by_answer[0].sum())))
    return places


def _tested(one: Round, place: int) -> bool:
    was_cut_short = one.num_emitted == one.num_accepted and place > one.num_accepted
    return one.num_draft_tokens >= place and one.num_accepted >= place - 1 and not was_cut_short


def shares(answers: Sequence[Answered], costs: Costs) -> Mapping[str, float]:
    """Return the shares of the time: passes of the target, of drafts, and the rest."""
    free = PassCosts(((1, 1e-12), (2, 1e-12)))
    without_drafts = Costs(costs.target, dict.fromkeys(costs.drafts, free))
    total = float(answer_seconds(answers, costs).sum())
    target_and_rest = float(answer_seconds(answers, without_drafts).sum())
    rest = sum(one.other_s for answer in answers for one in answer.rounds)
    if total <= 0:
        return {"target": 0.0, "drafts": 0.0, "other": 0.0}
    parts = {"target": target_and_rest - rest, "drafts": total - target_and_rest, "other": rest}
    return {name: seconds / total for name, seconds in parts.items()}


def ratio(numerators: Floats, denominators: Floats, rng: np.random.Generator) -> Estimate:
    """Return the ratio of two sums over prompts, with its interval.

    Prompts are drawn anew (bootstrap), and the quantiles taken at levels that make up for how few there are, by the t
    distribution: the expanded percentile interval of Hesterberg (1411.5279).

    Args:
        numerators: Of each prompt, ``[prompts]``.
        denominators: The same; not all are 0.
        rng: Draws prompts anew.
    """
    count = len(numerators)
    value = float(numerators.sum() / denominators.sum())
    if count < LEAST_PROMPTS:
        return Estimate(value)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = (drawn @ numerators) / (drawn @ denominators)
    tail = float(ndtr(-np.sqrt(count / (count - 1)) * stdtrit(count - 1, (1 + _LEVEL) / 2)))
    low, high = np.quantile(ratios[np.isfinite(ratios)], [tail, 1 - tail])
    return Estimate(value, float(low), float(high))
