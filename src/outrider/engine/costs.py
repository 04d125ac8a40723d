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
_ATTENTION_ROWS = (1, 8)  # from which what a cached token costs is told apart, for a sequence and for each row


@dataclass(frozen=True, slots=True)
class Costs:
    """Of the passes of a target and its draft models, all in one unit.

    Attributes:
        target: The target's.
        drafts: Each draft model's, by the name of its drafter. One that is missing is measured.
    """

    target: PassCosts
    drafts: Mapping[str, PassCosts] = field(default_factory=dict)


def measure(
    backend: Backend,
    clock: Callable[[], float],
    *,
    rows: Sequence[int] = TARGET_ROWS,
    context: int = 0,
    repeats: int = 3,
) -> PassCosts:
    """Return what a model's passes cost, in seconds: the shortest of a few.

    Args:
        backend: Has room for the most rows behind the context.
        clock: Seconds from any fixed moment.
        rows: Ascending from 1, at least two. More than 64 of them are timed as the reading of a prompt, without logits.
        context: So many tokens in the cache tell what attention costs; 0 leaves that out. They have to be read first.
        repeats: Of each pass.
    """
    shapes = [PassShape(count, reads=count > 64) for count in rows]
    deep = [PassShape(count, context) for count in _ATTENTION_ROWS] if context else []
    flat = [PassShape(count) for count in _ATTENTION_ROWS] if context else []
    times = [min(taken) for taken in pass_seconds(backend, [*shapes, *flat, *deep], clock, repeats=repeats)]
    one = times[0] if times[0] > 0 else 1.0
    points: list[tuple[int, float]] = []
    for count, seconds in zip(rows, times, strict=False):
        before = points[-1][1] if points else 0.0
        points.append((count, max(seconds, before, one * (1 + _LEAST_ROW_COST * (count - 1)))))
    if not context:
        return PassCosts(tuple(points))
    few, many = (
        max(0.0, (times[len(rows) + len(flat) + place] - times[len(rows) + place]) / context) for place in range(2)
    )
    low, high = _ATTENTION_ROWS
    per_row = min(max(0.0, (many - few) / (high - low)), few)
    return PassCosts(tuple(points), few - low * per_row, per_row)
