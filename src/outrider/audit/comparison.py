"""Draws of short texts or token sequences, tested against those of another sampler or against the law itself.

A draw is a tuple of units, such as token ids or characters. Unit by unit: all draws of a prompt that begin alike are a
group, and what comes next in it is compared. Given how a draw begins, its next unit has the same law under both
samplers if they are the same; so which groups are large enough to look at says nothing about how they differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.audit.evidence import Fit, Homogeneity
from outrider.audit.statistics import pooled

Draw: TypeAlias = tuple[Any, ...]
Law: TypeAlias = Callable[[str, Draw], NDArray[np.float64]]
LEAST_GROUP = 50  # draws that begin alike are looked at if there are as many
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Distance:
    """An estimate of the total variation of whole draws, on average over the prompts.

    Attributes:
        value: A lower bound in expectation, and 0 where there is none.
        low: With ``high`` the interval of 95%.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"total variation at least {self.value:.3f} (95%: {self.low:.3f} to {self.high:.3f})"


def compare(
    name: str, ours: Mapping[str, Sequence[Draw]], theirs: Mapping[str, Sequence[Draw]]
) -> tuple[Homogeneity, Distance]:
    """Compare the draws of two samplers, prompt by prompt."""
    tables: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for prompt, draws in ours.items():
        one_of, other_of = by_beginning(draws), by_beginning(theirs[prompt])
        for start in sorted(one_of.keys() & other_of.keys(), key=repr):
            one, other = one_of[start], other_of[start]
            units = sorted(one.keys() | other.keys(), key=repr)
            if min(one.total(), other.total()) >= LEAST_GROUP and len(units) > 1:
                tables.append((tuple(one[unit] for unit in units), tuple(other[unit] for unit in units)))
    estimates = [_two_sample_tv(draws, theirs[prompt]) for prompt, draws in ours.items()]
    return Homogeneity(name, tuple(tables)), _distance(estimates)


def against_law(name: str, draws: Mapping[str, Sequence[Draw]], law: Law) -> tuple[Fit, Distance]:
    """Compare draws of token ids with the law.

    Args:
        name: Of the evidence.
        draws: By prompt; their units are token ids.
        law: From a prompt and the token ids after it, the law of the next token, ``[vocab_size]``. A token of
            probability zero is a failure by itself, and so is one that there is none of, such as ``vocab_size``.
    """
    cells = []
    for prompt, each in draws.items():
        size = len(law(prompt, ()))
        for start, seen in by_beginning(each).items():
            if seen.total() >= LEAST_GROUP and all(unit < size for unit in start):
                counts = [seen[unit] for unit in range(size)]
                cells.append(pooled([*counts, seen.total() - sum(counts)], np.append(law(prompt, start), 0.0)))
    estimates = []
    for prompt, each in draws.items():
        estimates.append(_tv_to_law(each, lambda draw, prompt=prompt: _chance(draw, prompt, law)))  # type: ignore[misc]
    return Fit(name, tuple(cells)), _distance(estimates)


def _distance(estimates: Sequence[tuple[float, float]]) -> Distance:
    value = sum(value for value, _ in estimates) / len(estimates)
    error = _Z95 * sqrt(sum(variance for _, variance in estimates)) / len(estimates)
    return Distance(max(0.0, value), max(0.0, value - error), min(1.0, max(0.0, value + error)))


def by_beginning(draws: Sequence[Draw]) -> dict[Draw, Counter[Any]]:
    """Count what comes next, by how a draw begins."""
    groups: dict[Draw, Counter[Any]] = defaultdict(Counter)
    for draw in draws:
        for depth, unit in enumerate(draw):
            groups[draw[:depth]][unit] += 1
    return groups


def _two_sample_tv(ours: Sequence[Draw], theirs: Sequence[Draw]) -> tuple[float, float]:
    """Return an estimate of the total variation, and its variance.

    Half of the draws say which outcomes are likelier on our side; by how much they are is counted in the other half,
    where it is not biased by the choice. Both ways round, on average.
    """
    value = variance = 0.0
    for fold in (0, 1):
        chosen, tested = (ours[fold::2], theirs[fold::2]), (ours[1 - fold :: 2], theirs[1 - fold :: 2])
        one, other = Counter(chosen[0]), Counter(chosen[1])
        likelier = {draw for draw in one if one[draw] * len(chosen[1]) > other[draw] * len(chosen[0])}
        shares = [sum(draw in likelier for draw in draws) / max(1, len(draws)) for draws in tested]
        value += (shares[0] - shares[1]) / 2
        variance += (
            sum(share * (1 - share) / max(1, len(draws)) for share, draws in zip(shares, tested, strict=True)) / 4
        )
    return value, variance


def _tv_to_law(draws: Sequence[Draw], chance: Callable[[Draw], float]) -> tuple[float, float]:
    """Return the same against a law: by how much the draws seen too often in one half are too many in the other."""
    value = variance = 0.0
    for fold in (0, 1):
        chosen, tested = Counter(draws[fold::2]), draws[1 - fold :: 2]
        chances = {draw: chance(draw) for draw, count in chosen.items() if count > 1}
        likelier = {draw for draw, one in chances.items() if chosen[draw] > one * chosen.total()}
        share = sum(draw in likelier for draw in tested) / max(1, len(tested))
        value += (share - sum(chances[draw] for draw in likelier)) / 2
        variance += share * (1 - share) / max(1, len(tested)) / 4
    return value, variance


def _chance(draw: Draw, prompt: str, law: Law) -> float:
    chance = 1.0
    for place, unit in enumerate(draw):
        probs = law(prompt, draw[:place])
        if unit >= len(probs):
            return 0.0
        chance *= float(probs[unit])
    return chance
