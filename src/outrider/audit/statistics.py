"""Tests of counts against laws, and of two samples against each other. Pure: counts in, numbers out.

Every test ends in a p-value that is at least as large as it should be, so that any of them may stand side by side in
:func:`holm`. Cells are chosen by the law alone, never by the counts. The tests' own size and power are simulated in
``tests/audit/test_statistics.py``, and compared with SciPy where SciPy has the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc, chdtri, chndtr

from outrider.errors import UsageError

# Below this a cell's count is too coarse for the tails of chi-square that are looked at here.
LEAST_EXPECTED = 25.0
Counts = Sequence[int] | NDArray[np.int64]
Weights = Sequence[float] | NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a test says.

    Attributes:
        statistic: Infinite if something impossible was seen.
        df: Degrees of freedom; 0 if there was nothing to test, and the p-value is then 1.
        p_value: The chance of a statistic this large if the law holds.
    """

    statistic: float
    df: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Cells:
    """How often each of some cells was seen, beside its probability.

    Attributes:
        counts: Whole numbers, not negative.
        probs: Of the same length; sum to 1. A count in a cell of probability 0 is a failure by itself.
    """

    counts: tuple[int, ...]
    probs: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.probs) or not self.counts:
            raise UsageError(f"{len(self.counts)} counts for {len(self.probs)} probabilities; there must be as many")
        if min(self.counts) < 0 or not all(0 <= prob <= 1 + 1e-9 for prob in self.probs):
            raise UsageError("a count is negative, or a probability is not between 0 and 1")
        if abs(sum(self.probs) - 1) > 1e-6:
            raise UsageError(f"the probabilities sum to {sum(self.probs)}; they must sum to 1")

    @property
    def num(self) -> int:
        """How many observations there are."""
        return sum(self.counts)


def pool(probs: Weights, num: int, *, least_expected: float = LEAST_EXPECTED, most_cells: int = 64) -> NDArray[np.intp]:
    """Return which cells stand for themselves; all others are to be counted together.

    Args:
        probs: Of all cells.
        num: How many observations there will be.
        least_expected: How many of them a cell must expect to stand for itself.
        most_cells: At most so many do, the likeliest; ties go to the lower number.
    """
    array = np.asarray(probs, dtype=np.float64)
    order = np.argsort(-array, kind="stable")[:most_cells]
    return order[array[order] * num >= least_expected]


def pooled(counts: Counts, probs: Weights, *, least_expected: float = LEAST_EXPECTED, most_cells: int = 64) -> Cells:
    """Return counts of a known law in cells large enough to test: small ones together, impossible ones by themselves.

    Args:
        counts: Of all cells.
        probs: Of all cells; sum to 1.
        least_expected: See :func:`pool`.
        most_cells: See :func:`pool`.
    """
    seen, law = np.asarray(counts, dtype=np.int64), np.asarray(probs, dtype=np.float64)
    num = int(seen.sum())
    kept = pool(law, num, least_expected=least_expected, most_cells=most_cells)
    is_rest = law > 0
    is_rest[kept] = False
    rest = (int(seen[is_rest].sum()), float(law[is_rest].sum()))
    cells = [(int(seen[cell]), float(law[cell])) for cell in kept]
    if cells and 0 < rest[1] * num < least_expected:  # too small to stand alone: the smallest cell takes it in
        last = cells.pop()
        rest = (last[0] + rest[0], last[1] + rest[1])
    cells += [rest, (int(seen[law == 0].sum()), 0.0)]
    used = [cell for cell in cells if cell != (0, 0.0)]
    return Cells(tuple(count for count, _ in used), tuple(prob for _, prob in used))


def g_statistic(counts: Counts, expected: Weights) -> float:
    """Return ``2 * sum(observed * ln(observed / expected))``, the likelihood ratio statistic of counts."""
    total = 0.0
    for count, mean in zip(counts, expected, strict=True):
        if count > 0:
            if mean <= 0 or count / mean == inf:
                return inf
            total += count * log(count / mean)
    return 2 * total


def g_test(groups: Sequence[Cells]) -> Finding:
    """Test that each group of counts was drawn from its law: G summed over the groups.

    Williams' correction (1976) brings the mean of G to its degrees of freedom; without it many small cells would add
    up to false alarms.
    """
    statistic, df = 0.0, 0
    for cells in groups:
        possible = [prob for prob in cells.probs if prob > 0]
        if any(count > 0 and prob == 0 for count, prob in zip(cells.counts, cells.probs, strict=True)):
            statistic = inf
        own_df = len(possible) - 1
        df += own_df
        if own_df and cells.num:
            correction = 1 + (sum(1 / prob for prob in possible) - 1) / (6 * cells.num * own_df)
            raw = g_statistic(cells.counts, [prob * cells.num for prob in cells.probs])
            statistic += inf if raw == inf else max(0.0, raw) / correction  # rounding may leave less than nothing
    return _result(statistic, df)


def two_sample_g_test(groups: Sequence[tuple[Counts, Counts]]) -> Finding:
    """Test that the two samples of each group come from one law, whatever it is: G of 2 x cells tables, summed.

    Cells where the two together expect too little are counted together first: by the sum of both samples, which says
    nothing of how they differ.
    """
    statistic, df = 0.0, 0
    for one, other in groups:
        table = np.array([one, other], dtype=np.int64)
        sums = table.sum(axis=1)
        if min(sums) == 0:
            continue
        share = sums.min() / sums.sum()
        merged = _merge_small(table, share)
        totals = merged.sum(axis=0)
        num, cells = int(totals.sum()), merged.shape[1]
        if cells < 2:
            continue
        expected = np.outer(sums, totals) / num
        raw = g_statistic(merged.ravel().tolist(), expected.ravel())
        spread = (num * (1 / sums).sum() - 1) * (num * (1 / totals).sum() - 1)
        statistic += max(0.0, raw) / (1 + spread / (6 * num * (cells - 1)))
        df += cells - 1
    return _result(statistic, df)


def permutation_test(
    groups: Sequence[tuple[Counts, Counts]], rng: np.random.Generator, num_permutations: int = 9999
) -> Finding:
    """Test the same by dealing the observations of each group out again: exact for any number of them.

    The statistic is the total variation between the two samples, summed over groups by their sizes. Its p-value is no
    smaller than ``1 / (num_permutations + 1)``.
    """
    tables = [np.array(group, dtype=np.int64) for group in groups if min(map(sum, group)) > 0]
    observed = sum(map(_distance, tables))
    at_least = 1
    for _ in range(num_permutations):
        dealt = 0.0
        for table in tables:
            totals = table.sum(axis=0)
            first = rng.multivariate_hypergeometric(totals, int(table[0].sum()))
            dealt += _distance(np.array([first, totals - first]))
        at_least += dealt >= observed - 1e-12
    return Finding(observed, 0, at_least / (num_permutations + 1))


def rate_test(num: int, observed: int, expected: float) -> Finding:
    """Test how many of ``num`` independent yes-or-no decisions came out yes, their chances adding up to ``expected``.

    The chances may differ. The p-value is twice Hoeffding's bound (1963, theorem 1): never too small, and at the levels
    used here about ten times the exact one.
    """
    if num == 0:
        return Finding(0.0, 0, 1.0)
    distance = num * _binary_divergence(observed / num, min(max(expected / num, 0.0), 1.0))
    return Finding(2 * distance, 1, min(1.0, 2 * exp(-distance)))


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Return which hypotheses fall, with a chance of at most ``level`` that any true one does (Holm, 1979)."""
    rejected = [False] * len(p_values)
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def least_noncentrality(df: int, level: float, power: float) -> float:
    """Return the noncentrality at which a chi-square test at ``level`` rejects with chance ``power``."""
    critical = float(chdtri(df, level))
    low, high = 0.0, 10.0
    while 1 - chndtr(critical, df, high) < power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if 1 - chndtr(critical, df, middle) >= power else (middle, high)
    return high


def least_total_variation(num: int, df: int, level: float, power: float) -> float:
    """Return the smallest total variation that a G-test of ``num`` observations finds with chance ``power``.

    Of laws that differ by this much in its cells, the hardest to find has ``sum((other - law)**2 / law)`` equal to four
    times the square of the total variation; any other is easier. Over several groups it is the mean by their sizes.
    """
    return 1.0 if num == 0 or df == 0 else min(1.0, sqrt(least_noncentrality(df, level, power) / num) / 2)


def needed_observations(total_variation: float, df: int, level: float, power: float) -> int:
    """Return how many observations find a total variation with chance ``power``; the inverse of the above."""
    return int(least_noncentrality(max(df, 1), level, power) / (4 * total_variation**2)) + 1


def _result(statistic: float, df: int) -> Finding:
    if statistic == inf:
        return Finding(inf, df, 0.0)
    return Finding(float(statistic), df, float(chdtrc(df, statistic)) if df else 1.0)


def _merge_small(table: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    totals = table.sum(axis=0)
    is_large = totals * share >= LEAST_EXPECTED
    rest = table[:, ~is_large].sum(axis=1, keepdims=True)
    if is_large.any() and rest.sum() * share < LEAST_EXPECTED:  # too small to stand alone, as in pooled
        smallest = np.flatnonzero(is_large)[totals[is_large].argmin()]
        table = table.copy()
        table[:, smallest] += rest[:, 0]
        return table[:, is_large]
    return np.hstack([table[:, is_large], rest])


def _distance(table: NDArray[np.int64]) -> float:
    sums = table.sum(axis=1)
    laws = table / sums[:, None]
    return float(abs(laws[0] - laws[1]).sum() / 2 * sums.sum())


def _binary_divergence(one: float, other: float) -> float:
    total = 0.0
    for seen, mean in ((one, other), (1 - one, 1 - other)):
        if seen > 0:
            if mean <= 0:
                return inf
            total += seen * log(seen / mean)
    return max(0.0, total)
