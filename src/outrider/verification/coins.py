"""Where random decisions come from: a pure function of a seed and of which decision it is.

No decision depends on how many were taken before it elsewhere, so a request's text does not depend on batch order, on
how a prompt was chunked, on other requests or on being interrupted and resumed.

Every decision has an address, and no address is used twice in a sequence:

* A round starts at the absolute position of the first token it may emit. Every round emits, so starts only grow, and
  decision number ``index`` of a round is found at ``(start, index)``. It would be wrong to key all decisions by the
  position of the token they concern: a rule may look at draft tokens that it then turns back (block verification
  does), and a coin that has been looked at is not random any more.
* The draws of verification are the exception: draw number ``index`` is found at ``(start + index, 0)``. A rule draws
  at most once for each token it emits, so this is safe too, and it makes a rule that draws every token from the
  target's law emit, for one seed, the same text whatever the drafts were.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from math import isfinite
from struct import Struct
from typing import Any

import numpy as np

from outrider._core import Law
from outrider.errors import NumericalError
from outrider.types import DraftCoins, Probs, Weights
from outrider.verification.law import as_array

_ADDRESS = Struct("<6Q")
_BLOCK = 512


class Purpose(IntEnum):
    """What decisions are for; different purposes never share randomness."""

    DRAFT = 0
    VERIFY = 1
    COUPLED = 2


class _Kind(IntEnum):
    ACCEPT = 0
    DRAW = 1


@dataclass(frozen=True, slots=True)
class CoinSource:
    """All the randomness of one sequence.

    Attributes:
        seed: The caller's seed or, for a request without one, fresh entropy; ``0 <= seed < 2**64``.
        sequence: Tells apart the sequences of one request (its choice number, not anything that depends on load).
    """

    seed: int
    sequence: int = 0

    def at(self, position: int, purpose: Purpose) -> DraftCoins:
        """Return the decisions of the round that starts at ``position``, the length of what is committed so far."""
        return RoundCoins(self, position, purpose)

    def uniform(self, purpose: int, kind: int, position: int, index: int) -> float:
        """Return the number in [0, 1), a multiple of 2**-53, that lives at an address."""
        return (self.bits(purpose, kind, position, index) >> 11) * 2.0**-53

    def bits(self, purpose: int, kind: int, position: int, index: int) -> int:
        """Return the 64 random bits that live at an address."""
        address = _ADDRESS.pack(self.seed, self.sequence, purpose, kind, position, index)
        return int.from_bytes(blake2b(address, digest_size=8, person=b"outrider").digest(), "little")


class RoundCoins:
    """The decisions of one round and purpose, in the order in which they are asked for; a ``Coins``."""

    __slots__ = ("_accepts", "_draws", "_position", "_purpose", "_source")

    def __init__(self, source: CoinSource, position: int, purpose: Purpose) -> None:
        self._source = source
        self._position = position
        self._purpose = purpose
        self._accepts = 0
        self._draws = 0

    def at_depth(self, _depth: int, /) -> RoundCoins:
        """See :meth:`outrider.types.DraftCoins.at_depth`: no two of them are alike, wherever they are taken."""
        return self

    def accept(self, numerator: Any, denominator: Any) -> bool:
        """See :meth:`outrider.types.Coins.accept`."""
        uniform = self._source.uniform(self._purpose, _Kind.ACCEPT, self._position, self._accepts)
        self._accepts += 1
        return accept_at(uniform, numerator, denominator)

    def draw(self, weights: Weights) -> int:
        """See :meth:`outrider.types.Coins.draw`."""
        if self._purpose is Purpose.VERIFY:
            position, index = self._position + self._draws, 0
        else:
            position, index = self._position, self._draws
        self._draws += 1
        return draw_at(self._source.uniform(self._purpose, _Kind.DRAW, position, index), weights)


def accept_at(uniform: float, numerator: float, denominator: float) -> bool:
    """Return whether ``uniform``, in [0, 1), falls below ``numerator / denominator``.

    The product form needs no division, and with the strict comparison a numerator of zero is never accepted, nor a
    numerator equal to the denominator ever refused, at either end of the range of ``uniform``.

    Raises:
        NumericalError: An argument is not a finite number of at least zero.
    """
    if not (numerator >= 0.0 and denominator >= 0.0 and isfinite(numerator) and isfinite(denominator)):
        raise NumericalError(
            f"cannot accept with probability {numerator!r} / {denominator!r}; "
            "both must be finite and not negative: look for NaN or infinity in the models' logits"
        )
    return uniform * denominator < numerator


def draw_at(uniform: float, weights: Weights) -> int:
    """Return the index at which the cumulated weights pass ``uniform``, in [0, 1), times their sum.

    Raises:
        NumericalError: A weight is NaN, infinite or negative, or none is positive.
    """
    if isinstance(weights, Law):
        check_total(weights.sum(), 0)
        return weights.draw(uniform)
    weights = as_array(weights)
    # Cumulating a whole vocabulary costs ten times its sum; so find the block first, then the entry in it.
    starts = np.arange(0, len(weights), _BLOCK)
    cumulated = np.cumsum(np.add.reduceat(weights, starts))
    total = cumulated[-1]
    check_weights(weights, total)
    point = uniform * total
    block = _first_above(cumulated, point)
    if block > 0:
        point -= cumulated[block - 1]
    start = int(starts[block])
    return start + _first_above(np.cumsum(weights[start : start + _BLOCK]), point)


def check_weights(weights: Probs, total: Any) -> None:
    """Check that weights with this sum are a law but for their scale.

    Raises:
        NumericalError: A weight is NaN, infinite or negative, or none is positive.
    """
    check_total(total, weights.min())


def check_total(total: Any, least: Any) -> None:
    """Check the sum of weights, and the least of them."""
    if not (least >= 0 and 0 < total < np.inf):
        raise NumericalError(
            f"cannot draw from weights with the sum {total} and the minimum {least}; they must be finite, not "
            "negative and not all zero: look for NaN or infinity in the models' logits"
        )


def _first_above(cumulated: Probs, point: float) -> int:
    """Return the first index whose cumulated weight exceeds ``point``, so never one whose own weight is zero.

    Rounding may leave ``point`` at the very end; that is the last entry with a weight then.
    """
    index = np.searchsorted(cumulated, point, side="right")
    return int(min(index, np.searchsorted(cumulated, cumulated[-1], side="left")))
