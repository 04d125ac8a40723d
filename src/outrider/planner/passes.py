"""How long passes take on this machine, with their spread; and what follows for a pass of any shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from outrider.backends.base import Backend
from outrider.backends.prefill import PIECE
from outrider.backends.timing import PassShape, pass_seconds
from outrider.drafters.gain import PassCosts

# A target checks up to 65 rows; a draft model reads one or two, and pieces of prompts.
TARGET_ROWS = (1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 24, 32, 65)
DRAFT_ROWS, DRAFT_CHECKED = (1, 2, 4, 8, 16, 64, PIECE), 16
_ATTENTION_ROWS = (1, 8, 16)  # whose passes are timed at longer contexts
BATCHES = (1, 2, 4, 8)
_REPEATS, _MOST_REPEATS = 5, 20
# Of a pass, half of whose times are to lie within so much of the median; otherwise it is measured again.
MAX_SPREAD = 0.1
# A row cannot be for nothing, whatever a busy machine makes it look like.
_LEAST_ROW_COST = 0.001


@dataclass(frozen=True, slots=True)
class Timed:
    """How long passes of one shape took.

    Attributes:
        shape: What they computed.
        seconds: The median.
        low, high: The quartiles.
        count: How many were timed.
    """

    shape: PassShape
    seconds: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """The distance of the quartiles, by the median."""
        return (self.high - self.low) / self.seconds if self.seconds > 0 else 0.0


def time_passes(
    backend: Backend, shapes: Sequence[PassShape], clock: Callable[[], float], *, max_spread: float = MAX_SPREAD
) -> list[Timed]:
    """Return how long passes of each shape take.

    All are measured again, up to 20 times in all, as long as the typical spread is above ``max_spread``: what a noisy
    machine says is reported with its spread, not smoothed over.
    """
    times: list[list[float]] = [[] for _ in shapes]
    while True:
        for own, more in zip(times, pass_seconds(backend, shapes, clock, repeats=_REPEATS), strict=True):
            own.extend(more)
        timed = [_timed(shape, own) for shape, own in zip(shapes, times, strict=True)]
        if typical_spread(timed) <= max_spread or len(times[0]) >= _MOST_REPEATS:
            return timed


def typical_spread(timed: Sequence[Timed]) -> float:
    """Return the median of the spreads of some passes."""
    return float(np.median([one.spread for one in timed]))


def _timed(shape: PassShape, seconds: Sequence[float]) -> Timed:
    low, median, high = np.quantile(np.asarray(seconds), [0.25, 0.5, 0.75])
    return Timed(shape, float(median), float(low), float(high), len(seconds))


def shapes_of(
    rows: Sequence[int],
    contexts: Sequence[int],
    max_length: int,
    batches: Sequence[int] = (),
    *,
    checked: int = TARGET_ROWS[-1],
) -> list[PassShape]:
    """Return the passes to time: every number of rows at empty caches, some at each context, and some batches.

    Args:
        rows: Ascending from 1.
        contexts: Tokens in the cache.
        max_length: Of a sequence; what does not fit is left out.
        batches: Numbers of sequences, for passes of one and of four rows each.
        checked: The most rows that logits are wanted of; passes over more read a text.
    """
    shapes = [PassShape(count, reads=count > checked) for count in rows]
    shapes += [PassShape(count, context) for context in contexts for count in _ATTENTION_ROWS]
    shapes += [PassShape(count, 0, batch) for batch in batches if batch > 1 for count in (1, 4)]
    fitting = [shape for shape in shapes if shape.rows + shape.context <= max_length]
    return list(dict.fromkeys(fitting))


def fitted(timed: Sequence[Timed]) -> PassCosts:
    """Return what a pass of any shape costs, in seconds: matrices by the rows, attention by rows and context.

    Attention's share is the least-squares fit of what passes take longer at longer contexts; nothing is below zero.
    """
    single = [one for one in timed if one.shape.sequences == 1]
    flat = {one.shape.rows: one.seconds for one in single if one.shape.context == 0}
    first = flat[min(flat)]
    points: list[tuple[int, float]] = []
    for rows, seconds in sorted(flat.items()):
        before = points[-1][1] if points else 0.0
        points.append((rows, max(seconds, before, first * (1 + _LEAST_ROW_COST * (rows - 1)), 1e-9)))
    costs = PassCosts(tuple(points))
    deep = [one for one in single if one.shape.context > 0]
    if not deep:
        return costs
    longer = np.array([one.seconds - costs.at(one.shape.rows) for one in deep])
    both = np.array([(one.shape.context, one.shape.rows * one.shape.context) for one in deep], np.float64)
    once, per_row = np.linalg.lstsq(both, longer, rcond=None)[0]
    if once < 0 or per_row < 0:  # one of them alone
        per_row = max(0.0, float(both[:, 1] @ longer / (both[:, 1] @ both[:, 1])))
        once = 0.0
    return PassCosts(tuple(points), float(once), float(per_row))
