"""A test that may be looked at after every observation, and stopped whenever it has seen enough.

Each token is turned into a number that is uniform if the law holds (:func:`place`), and those are counted in bins. A
bettor who wagers at fair odds that some bins come up more often can only grow rich if they do: his wealth is a
martingale, and by Ville's inequality (1939) exceeds ``1 / level`` at any time with a chance of at most ``level``. The
wealth here is the mean of many bettors', one for each of some shapes of deviation, each at some stakes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

from outrider.errors import UsageError

NUM_BINS = 16
_SHAPES = 6
_STAKES = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)


def _log_odds() -> NDArray[np.float64]:
    """Return the logarithm of what each bettor's wealth is multiplied by in each bin, ``[bettors, NUM_BINS]``.

    The shapes are cosines, of mean zero over the bins: so the mean factor is 1, which is what makes the odds fair.
    """
    places = (np.arange(NUM_BINS) + 0.5) / NUM_BINS
    shapes = [np.sqrt(2) * np.cos(np.pi * order * places) for order in range(1, _SHAPES + 1)]
    odds = [1 + sign * stake * shape for shape in shapes for stake in _STAKES for sign in (1, -1)]
    logs: NDArray[np.float64] = np.log(np.array(odds))
    return logs


_LOG_ODDS = _log_odds()


def log_wealth(counts: Sequence[int] | Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the logarithm of the wealth after some observations, ``[...]``.

    Args:
        counts: ``[..., NUM_BINS]``: how many fell into each bin.
    """
    seen = np.asarray(counts, dtype=np.float64)
    if seen.shape[-1:] != (NUM_BINS,):
        raise UsageError(f"{seen.shape[-1]} bins are counted; there are {NUM_BINS}")
    each = seen @ _LOG_ODDS.T
    top: NDArray[np.float64] = each.max(axis=-1)
    wealth: NDArray[np.float64] = top + np.log(np.exp(each - top[..., np.newaxis]).mean(axis=-1))
    return wealth


def anytime_p_value(checkpoints: Sequence[Sequence[int]]) -> float:
    """Return one over the greatest wealth at any checkpoint, at most 1: a p-value however the run was stopped."""
    greatest = float(log_wealth(checkpoints).max()) if checkpoints else 0.0
    return exp(-max(0.0, greatest))


def place(before: float, prob: float, uniform: float) -> int:
    """Return the bin of a token: uniform over the bins if the token was drawn from its law.

    Args:
        before: The probability of all tokens that come before it, in an order that does not depend on it.
        prob: Its own.
        uniform: From [0, 1), independent of everything: where in its own stretch of the line the token is put.
    """
    return min(NUM_BINS - 1, int((before + uniform * prob) * NUM_BINS))
