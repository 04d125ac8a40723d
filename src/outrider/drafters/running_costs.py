"""What a model's passes cost now: what was measured once, corrected by the passes that are made.

Pure: reads no clock. What passes took is given, and the same passes make the same costs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from outrider.backends.metered import Pass
from outrider.drafters.gain import PassCosts, rising

# Of each number of rows the median of so many of the last passes counts, so that a pass that the machine disturbed does
# not; at first so many of them are as measured.
_WINDOW, _AS_MEASURED = 9, 3
# What was not seen in so many passes leans on what was: by this share of the difference only, in logarithms, since a
# pass of one row is bound by memory and one of many by arithmetic, and each slows down for reasons of its own.
_FRESH, _LEAN = 64, 0.25
# Passes over more rows than this read a text and are measured without logits, those over fewer with one for each row.
_MOST_WITH_LOGITS = 64
_MOST = 50.0  # times as long as was measured, or as short: more says something about the clock


@dataclass(slots=True)
class _Ratios:
    """How long the last passes over about so many rows took, by what was measured."""

    last: deque[float] = field(default_factory=lambda: deque([1.0] * _AS_MEASURED, maxlen=_WINDOW))
    seen_at: float = -inf


class RunningCosts:
    """The costs of one model.

    Args:
        measured: In seconds if there are passes, or in any one unit.
        passes: Where passes are noted as they are made, to be taken out here. None if nobody does.
    """

    def __init__(self, measured: PassCosts, passes: MutableSequence[Pass] | None = None) -> None:
        self.now = measured
        self._measured = measured
        self._passes = passes
        self._ratios = [_Ratios() for _ in measured.points]
        self._num_seen = 0

    def update(self) -> bool:
        """Take the passes made since the last time; return whether that changed what they cost."""
        if not self._passes:
            return False
        before = self._num_seen
        for one in self._passes:
            self._observe(one)
        self._passes.clear()
        if self._num_seen > before:
            self.now = self._corrected()
        return self._num_seen > before

    def _observe(self, one: Pass) -> None:
        """Take note of a pass, unless it is of a kind that was not measured, such as one that also reads a prompt."""
        rows = one.rows
        is_known = one.num_logits == rows if rows <= _MOST_WITH_LOGITS else one.num_logits <= len(one.batch)
        expected = self._measured.of(one.batch)
        if not is_known or rows > self._measured.points[-1][0] or not 0 < one.seconds < inf:
            return
        self._num_seen += 1
        nearest = min(self._measured.points, key=lambda point: max(point[0], rows) / min(point[0], rows))
        ratios = self._ratios[self._measured.points.index(nearest)]
        ratios.last.append(min(max(one.seconds / expected, 1 / _MOST), _MOST))
        ratios.seen_at = self._num_seen

    def _corrected(self) -> PassCosts:
        own = [median(ratios.last) for ratios in self._ratios]
        fresh = [place for place, one in enumerate(self._ratios) if self._num_seen - one.seen_at < _FRESH]
        points: list[tuple[int, float]] = []
        for place, (rows, cost) in enumerate(self._measured.points):
            near = min(fresh, key=lambda other: abs(other - place))
            ratio = own[place] if near == place else own[place] ** (1 - _LEAN) * own[near] ** _LEAN
            points.append((rows, cost * ratio))
        slower = points[0][1] / self._measured.points[0][1]
        slopes = (self._measured.per_context * slower, self._measured.per_row_context * slower)
        return PassCosts(rising(points), *slopes)
