"""Medians and how far the measurements lie apart: pure functions of numbers."""

from __future__ import annotations

from collections.abc import Sequence

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
