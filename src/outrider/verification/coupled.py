"""Coupled decoding: the draft and the target draw with the same noise (Daliri, Musco, Suresh, 2408.07978).

The noise belongs to a position and a token id. A token is drawn as the winner of a race: the id with the smallest
``exponential noise / probability``, which is ``i`` with exactly its probability. The target's winner is what is
emitted, so the text is a function of the seed and the target alone: bit for bit the same with and without speculation,
for any draft, length or tree. A draft that races on the same noise with a similar law mostly has the same winner.

There is no rule to it. Verification is :func:`~outrider.verification.verify_point_mass`, or
:func:`~outrider.verification.verify_tree` without laws, with :class:`RaceCoins`; a drafter draws its tokens, one per
position and in order, with a :class:`RaceCoins` for the same position.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider._core import Law
from outrider.errors import UsageError
from outrider.types import Probs, Weights
from outrider.verification.coins import CoinSource, Purpose, check_total, check_weights
from outrider.verification.law import as_array

# Constants of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
_STEP, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_GROUP = 64


class RaceCoins:
    """Draws for successive positions by races on a sequence's shared noise; a ``Coins`` that only draws.

    Args:
        source: Of the sequence; the same for its draft and its target.
        position: Of the first token to draw; each draw moves on by one.
    """

    __slots__ = ("_position", "_source")

    def __init__(self, source: CoinSource, position: int) -> None:
        self._source = source
        self._position = position

    def at_depth(self, depth: int) -> RaceCoins:
        """See :meth:`outrider.types.DraftCoins.at_depth`."""
        return RaceCoins(self._source, self._position + depth)

    def draw(self, weights: Weights) -> int:
        """See :meth:`outrider.types.Coins.draw`; the lowest id on a tie."""
        position = self._position
        self._position += 1
        if isinstance(weights, Law):
            check_total(weights.sum(), 0)
            return weights.race(noise_key(self._source, position))
        ids, times = race(self._source, position, as_array(weights))
        return int(ids[np.argmin(times)])

    def accept(self, numerator: float, denominator: float) -> bool:
        """Refuse: noise that the draft has seen cannot decide whether to accept it."""
        raise UsageError(
            f"shared noise cannot accept with probability {numerator} / {denominator}; verify by verify_point_mass"
        )


def race(source: CoinSource, position: int, weights: Probs) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the ids of positive weight, ascending, and when each arrives at a position: noise / weight.

    The first to arrive is a draw from the weights; the first few, in order, are draws without replacement. The noise
    of a token does not depend on its rank, on the other tokens or on the width of the vocabulary.

    Raises:
        NumericalError: A weight is NaN, infinite or negative, or none is positive.
    """
    check_weights(weights, weights.sum())
    ids = np.flatnonzero(weights)
    times = exponential_noise(noise_key(source, position), ids)
    with np.errstate(over="ignore"):  # a subnormal weight arrives at infinity: later than some other
        times /= weights[ids]
    return ids, times


def noise_key(source: CoinSource, position: int) -> int:
    """Return what the noise at a position is a function of, beside the token."""
    return source.bits(Purpose.COUPLED, 0, position, 0)


def exponential_noise(key: int, ids: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the noise of ids: exponential with mean 1, each independent of the others.

    Ids stand in groups of 64. Of a group the least noise is drawn first, exponential with mean 1/64, then which id has
    it; what the others have beyond it is exponential again, since the exponential law has no memory. It comes to the
    same, and whoever races 150,000 tokens can pass over a group by its least noise (``csrc/sampling/noise.h``).
    """
    groups, places = np.divmod(ids, _GROUP)
    group_bits = _random_bits(key, groups * (_GROUP + 1))
    least = _minus_log(_open_uniform(group_bits)) / _GROUP
    beyond = _minus_log(_open_uniform(_random_bits(key, groups * (_GROUP + 1) + 1 + places)))
    has_least = places == (group_bits % np.uint64(_GROUP)).astype(np.intp)
    noise: NDArray[np.float64] = least + np.where(has_least, 0.0, beyond)
    return noise


def _random_bits(key: int, counters: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return outputs of SplitMix64 with the key for its seed, by their number."""
    bits = counters.astype(np.uint64)
    bits += np.uint64(1)
    bits *= _STEP
    bits += np.uint64(key)
    bits ^= bits >> np.uint64(30)
    bits *= _MIX_1
    bits ^= bits >> np.uint64(27)
    bits *= _MIX_2
    bits ^= bits >> np.uint64(31)
    return bits


def _open_uniform(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return numbers in (0, 1), of 2**52 steps: never an end."""
    uniform: NDArray[np.float64] = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return uniform


def _minus_log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``-ln x`` of numbers in (0, 1), the same on every machine, which libraries' logarithms are not.

    ``x = m * 2**e`` with m in [1 / sqrt 2, sqrt 2), ``s = (m - 1) / (m + 1)`` and ``ln m = 2 artanh s``, by its series.
    """
    m, exponent = np.frexp(x)
    is_low = m < 0.70710678118654752
    m = np.where(is_low, 2 * m, m)
    s = (m - 1) / (m + 1)
    square = s * s
    series = np.full_like(s, 1 / 23)
    for odd in range(21, 0, -2):
        series = series * square + 1 / odd
    log: NDArray[np.float64] = (exponent - is_low) * 0.6931471805599453 + 2 * s * series
    return np.negative(log, out=log)
