"""Medians and how far measurements lie apart: pure functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """Return the median of some measurements, their quartiles, their extremes and how many there are."""
    low, first, median, third, high = np.quantile(np.asarray(values, np.float64), [0, 0.25, 0.5, 0.75, 1])
    return {
        "median": float(median),
        "q1": float(first),
        "q3": float(third),
        "min": float(low),
        "max": float(high),
        "n": len(values),
    }


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float | int]:
    """Return the spread of ``ours[i] / theirs[i]``, two measurements taken one after the other.

    A machine that slows down for a while slows both of a pair, so that their ratio is steadier than either.
    """
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Return an interval that holds the median of what the values are drawn from with at least this probability.

    From order statistics, whatever the distribution: the interval from the k-th smallest to the k-th largest misses
    the median with probability 2 P(Binomial(n, 1/2) < k), by the sign test. None where even the extremes are not wide
    enough, as with fewer than six values at 95%.
    """
    ordered, n = sorted(values), len(values)
    missed, k = 0, 0
    while k < n // 2 and 2 * (missed + comb(n, k)) <= (1 - confidence) * 2**n:
        missed += comb(n, k)
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k else None
