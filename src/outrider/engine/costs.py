"""What passes cost on this machine: measured when models are loaded, or known from before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.backends.base import Backend
from outrider.backends.prefill import PIECE
from outrider.backends.timing import PassShape, pass_seconds
from outrider.drafters.gain import PassCosts

# Rows of a target's pass that are measured: a draft has up to 64 tokens, of which the last few are seldom worth it.
TARGET_ROWS = (1, 2, 4, 8, 16, 32)
# Of a draft model: tokens of several sequences side by side, and a piece of a prompt.
DRAFT_ROWS = (1, 2, 8, PIECE)
# Costs may not fall with more rows, nor a row be for nothing: a busy machine can make it look so, and drafts endless.
_LEAST_ROW_COST = 0.01


@dataclass(frozen=True, slots=True)
class Costs:
    """Of the passes of a target and its draft models, all in one unit.

    Attributes:
        target: The target's.
        drafts: Each draft model's, by the name of its drafter. One that is missing is measured.
    """

    target: PassCosts
    drafts: Mapping[str, PassCosts] = field(default_factory=dict)


def measure(backend: Backend, clock: Callable[[], float], *, rows: Sequence[int] = TARGET_ROWS) -> PassCosts:
    """Return what a model's passes cost at empty caches, in seconds: the shortest of two each.

    Args:
        backend: Has room for the most rows.
        clock: Seconds from any fixed moment.
        rows: Ascending from 1, at least two. More than 64 of them are timed as the reading of a prompt, without logits.
    """
    shapes = [PassShape(count, reads=count > 64) for count in rows]
    times = [min(taken) for taken in pass_seconds(backend, shapes, clock, repeats=2)]
    one = times[0] if times[0] > 0 else 1.0
    points: list[tuple[int, float]] = []
    for count, seconds in zip(rows, times, strict=True):
        before = points[-1][1] if points else 0.0
        points.append((count, max(seconds, before, one * (1 + _LEAST_ROW_COST * (count - 1)))))
    return PassCosts(tuple(points))


def least(visits: Sequence[PassCosts]) -> PassCosts | None:
    """Return the lowest of what several visits to a model measured; None of none.

    What disturbs a pass only ever makes it longer.
    """
    if not visits:
        return None
    return PassCosts(tuple(min(points) for points in zip(*(one.points for one in visits), strict=True)))
