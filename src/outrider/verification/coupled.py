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

from outrider.errors import UsageError
from outrider.types import Probs
from outrider.verification.coins import CoinSource, Purpose, check_weights

# Constants of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
_STEP, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


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

    def draw(self, weights: Probs) -> int:
        """See :meth:`outrider.types.Coins.draw`; the lowest id on a tie."""
        ids, times = race(self._source, self._position, weights)
        self._position += 1
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
    times = _exponential_noise(source.bits(Purpose.COUPLED, 0, position, 0), ids)
    with np.errstate(over="ignore"):  # a subnormal weight arrives at infinity: later than some other
        times /= weights[ids]
    return ids, times


def _exponential_noise(key: int, ids: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the exponential noise of ids: output ``id`` of SplitMix64 seeded with a hash of the position."""
    bits = ids.astype(np.uint64)
    bits += np.uint64(1)
    bits *= _STEP
    bits += np.uint64(key)
    bits ^= bits >> np.uint64(30)
    bits *= _MIX_1
    bits ^= bits >> np.uint64(27)
    bits *= _MIX_2
    bits ^= bits >> np.uint64(31)
    bits >>= np.uint64(12)
    uniform = bits.astype(np.float64)
    uniform += 0.5  # of 2**52 steps: never 0 and never 1
    uniform *= 2.0**-52
    noise: NDArray[np.float64] = np.log(uniform, out=uniform)
    return np.negative(noise, out=noise)
