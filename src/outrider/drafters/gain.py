"""What a draft is worth: how likely its tokens are accepted, what checking them costs, and how long it should be.

Pure: knows no tokens, models or clocks. Costs are in passes of one row of the target where nothing else is said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TypeAlias

from outrider.errors import UsageError

# Of an expectation: which source, what about it, and how well it matches.
Kind: TypeAlias = tuple[str, int, int]
_LEAST_ROW_COST = 0.01


@dataclass(frozen=True, slots=True)
class PassCosts:
    """What a model's pass costs by what it computes, in any one unit, such as seconds.

    The matrices are read once for all rows of all sequences; attention is paid for by each sequence and row.

    Attributes:
        points: Measured ``(rows, cost)`` at empty caches, rows ascending from 1; in between it is linear, and beyond
            the last point it goes on as between the last two. The default was measured on Qwen2.5-Coder 1.5B with 4-bit
            weights on two Zen 5 cores, with a context of 256 to 1000 tokens, a pass of one row being 1.
        per_context: What each token in the cache of each sequence adds, once a pass.
        per_row_context: What each token in the cache adds to each row of its sequence.
    """

    points: tuple[tuple[int, float], ...] = ((1, 1.0), (2, 1.05), (4, 1.1), (8, 1.2), (16, 1.9), (32, 3.2), (64, 6.0))
    per_context: float = 0.0
    per_row_context: float = 0.0

    def __post_init__(self) -> None:
        rows, costs = zip(*self.points, strict=True) if self.points else ((), ())
        ascends = all(low < high for low, high in pairwise(rows))
        slopes = (self.per_context, self.per_row_context)
        makes_sense = all(0 < cost < 1e6 for cost in costs) and all(0 <= slope < 1e6 for slope in slopes)
        if len(rows) < 2 or rows[0] != 1 or not ascends or not makes_sense:
            raise UsageError(
                f"pass costs are {self.points}, and {slopes} for a token in the cache; they must be (rows, cost) from "
                "1 row up, at least two, and numbers from 0 up"
            )

    def at(self, rows: int, context: int = 0) -> float:
        """Return the cost of a pass of so many rows of one sequence, whose cache holds ``context`` tokens."""
        return self.of([(rows, context)])

    def of(self, batch: Sequence[tuple[int, int]]) -> float:
        """Return the cost of one pass over several sequences, each of so many rows and tokens in its cache.

        What one more row of a request costs in a round is a difference of two of these.
        """
        attention = sum((self.per_context + self.per_row_context * rows) * context for rows, context in batch)
        return self._matrices(sum(rows for rows, _ in batch)) + attention

    def reading(self, num_tokens: int, *, context: int = 0, piece: int = 256) -> float:
        """Return the cost of feeding a text in passes of at most ``piece`` tokens."""
        starts = range(0, num_tokens, piece)
        return sum(self.at(min(piece, num_tokens - start), context + start) for start in starts)

    def in_units_of(self, unit: float) -> PassCosts:
        """Return the same costs, by what counts as 1."""
        points = tuple((rows, cost / unit) for rows, cost in self.points)
        return PassCosts(points, self.per_context / unit, self.per_row_context / unit)

    def _matrices(self, rows: int) -> float:
        points = self.points
        high = next((index for index, (end, _) in enumerate(points) if end >= rows), len(points) - 1) or 1
        (low_rows, low), (high_rows, above) = points[high - 1], points[high]
        return low + (above - low) * (rows - low_rows) / (high_rows - low_rows)


def rising(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """Return measured ``(rows, cost)`` so that costs do not fall with more rows, and no row is for nothing.

    A busy machine can make it look so, and drafts endless.
    """
    one = points[0][1]
    risen: list[tuple[int, float]] = []
    for rows, cost in points:
        before = risen[-1][1] if risen else 0.0
        risen.append((rows, max(cost, before, one * (1 + _LEAST_ROW_COST * (rows - 1)))))
    return tuple(risen)


@dataclass(slots=True)
class Rate:
    """Tokens by cost over the last rounds of a request: what a unit of cost is worth; at first as in plain decoding."""

    tokens: float = 1.0
    cost: float = 1.0

    def observe(self, tokens: int, cost: float) -> None:
        """Count a round; one of ten rounds ago counts a third."""
        self.tokens = 0.9 * self.tokens + tokens
        self.cost = 0.9 * self.cost + cost

    @property
    def value(self) -> float:
        """Tokens per unit of cost, at least what plain decoding gives."""
        return max(1.0, self.tokens / self.cost)


def choose_length(  # noqa: PLR0913 - what a token costs has several sides
    chances: Sequence[float],
    costs: PassCosts,
    rate: float,
    *,
    token_cost: float = 0.0,
    num_before: int = 0,
    context: int = 0,
    budget: float = inf,
) -> tuple[int, float]:
    """Return the draft length with the highest gain over no draft, and that gain: 0 and 0.0 if none pays.

    The gain of a length is the expected number of accepted tokens minus what its cost would have earned otherwise,
    ``sum of survivals - rate * (added cost of the pass + cost of drafting)``: the best ratio of tokens to cost, in
    Dinkelbach's form. General costs need all lengths looked at.

    Args:
        chances: That each token is accepted if those before it were.
        costs: Of the pass that checks them.
        rate: Tokens that a unit of cost earns; see :class:`Rate`.
        token_cost: Of drafting one token.
        num_before: Rows of the pass that come before them and are paid for: draft tokens, and other requests'.
        context: How many tokens the request's cache holds.
        budget: The most that a draft may cost.
    """
    best, best_gain = 0, 0.0
    expected, survival = 0.0, 1.0
    paid = costs.at(1 + num_before)
    token_cost += costs.per_row_context * context
    for length, chance in enumerate(chances, start=1):
        survival *= chance
        expected += survival
        cost = costs.at(1 + num_before + length) - paid + token_cost * length
        gain = expected - rate * cost
        if gain > best_gain and cost <= budget:
            best, best_gain = length, gain
    return best, best_gain


class Odds:
    """How often what was expected came true, by kind of expectation, learned on top of a prior.

    Args:
        prior: The chance that is assumed of a kind before there is any evidence.
        weight: How many observations a prior is worth.
    """

    def __init__(self, prior: Callable[[Kind], float], *, weight: float = 8.0) -> None:
        self._prior = prior
        self._weight = weight
        self._counts: dict[Kind, tuple[int, int]] = {}

    def chance(self, kind: Kind) -> float:
        """Return the estimated chance of a kind."""
        hits, tries = self._counts.get(kind, (0, 0))
        return (hits + self._weight * self._prior(kind)) / (tries + self._weight)

    def observe(self, kind: Kind, *, came_true: bool) -> None:
        """Learn from one outcome."""
        hits, tries = self._counts.get(kind, (0, 0))
        self._counts[kind] = (hits + came_true, tries + 1)
