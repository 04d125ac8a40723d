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
# not; at first so many of them are as measured, or as supposed.
_WINDOW, _SUPPOSED = 9, 3
_FRESH = 64  # what was not seen in so many rounds is only supposed to cost what it did
# Passes over more rows than this read a text and are measured without logits, those over fewer with one for each row.
_MOST_WITH_LOGITS = 64
_MOST = 50.0  # times as long as was measured, or as short: more says something about the clock


@dataclass(slots=True)
class _Kind:
    """Passes over about so many rows.

    Attributes:
        ratios: How long the last of them took, by what was measured.
        seen_at: In which round.
        beside: What the ratios of the guide were then.
    """

    beside: tuple[float, ...]
    ratios: deque[float] = field(default_factory=lambda: _start(1.0))
    seen_at: float = -inf


class RunningCosts:
    """The costs of one model.

    What was not seen for long is supposed to have become as much cheaper as what is seen has since, but never dearer:
    it is seen again only if it is tried, so the error that mends itself is to hold it too cheap. A machine that became
    faster since a draft was tried last would otherwise make drafts look dear for good.

    Args:
        measured: In seconds if there are passes, or in any one unit.
        passes: Where passes are noted as they are made, to be taken out here. None if nobody does.
        guide: Those of the model that makes a pass in every round, updated before; by default these.

    Attributes:
        ratios: How long passes took when they were last seen, by what was measured, for each of its points.
    """

    def __init__(
        self, measured: PassCosts, passes: MutableSequence[Pass] | None = None, guide: RunningCosts | None = None
    ) -> None:
        self._measured = measured
        self._passes = passes
        self._guide = guide or self
        self._num_rounds = 0
        self.ratios = (1.0,) * len(measured.points)
        self._kinds = [_Kind(self._guide.ratios) for _ in measured.points]

    @property
    def now(self) -> PassCosts:
        """What passes cost."""
        if self._passes is None:
            return self._measured
        ratios = [self._supposed(place) for place in range(len(self._kinds))]
        points = [(rows, cost * ratio) for (rows, cost), ratio in zip(self._measured.points, ratios, strict=True)]
        slopes = (self._measured.per_context * ratios[0], self._measured.per_row_context * ratios[0])
        return PassCosts(rising(points), *slopes)

    def update(self) -> bool:
        """Take the passes made in a round; return whether that changed what they cost."""
        self._num_rounds += 1
        seen = {place for one in self._passes or () if (place := self._observe(one)) is not None}
        if self._passes:
            self._passes.clear()
        if seen:
            self.ratios = tuple(median(kind.ratios) for kind in self._kinds)
        for place in seen:
            self._kinds[place].beside = self._guide.ratios
        return bool(seen)

    def freshest(self, rows: int) -> int | None:
        """Return which of the points seen lately is nearest to so many rows."""
        fresh = [place for place in range(len(self._kinds)) if self._is_fresh(place)]
        return min(fresh, key=lambda place: _apart(self._measured.points[place][0], rows), default=None)

    def _is_fresh(self, place: int) -> bool:
        return self._num_rounds - self._kinds[place].seen_at < _FRESH

    def _supposed(self, place: int) -> float:
        """Return the ratio of a point, whether or not it was seen lately."""
        near = None if self._is_fresh(place) else self._guide.freshest(self._measured.points[place][0])
        if near is None:
            return self.ratios[place]
        return self.ratios[place] * min(1.0, self._guide.ratios[near] / self._kinds[place].beside[near])

    def _observe(self, one: Pass) -> int | None:
        """Take note of a pass, and return at which point; None of a kind not measured, such as one that also reads."""
        rows = one.rows
        is_known = one.num_logits == rows if rows <= _MOST_WITH_LOGITS else one.num_logits <= len(one.batch)
        if not is_known or rows > self._measured.points[-1][0] or not 0 < one.seconds < inf:
            return None
        place = min(range(len(self._kinds)), key=lambda place: _apart(self._measured.points[place][0], rows))
        kind = self._kinds[place]
        if not self._is_fresh(place):
            kind.ratios = _start(self._supposed(place))
        kind.ratios.append(min(max(one.seconds / self._measured.of(one.batch), 1 / _MOST), _MOST))
        kind.seen_at = self._num_rounds
        return place


def _start(ratio: float) -> deque[float]:
    return deque([ratio] * _SUPPOSED, maxlen=_WINDOW)


def _apart(rows: int, others: int) -> float:
    return max(rows, others) / min(rows, others)
