"""What passes cost on this machine: measured when models are loaded, or known from before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from outrider.backends.base import Backend
from outrider.backends.prefill import PIECE
from outrider.backends.timing import PassShape, pass_seconds
from outrider.drafters.gain import PassCosts, rising

# Rows of a target's pass that are measured: a draft has up to 64 tokens, of which the last few are seldom worth it.
TARGET_ROWS = (1, 2, 4, 8, 16, 32)
# Of a draft model: tokens of several sequences side by side, and a piece of a prompt.
DRAFT_ROWS = (1, 2, 8, PIECE)
# What each token in a cache adds to a pass: so much of what reading as many bytes of weights takes, and so much again
# for each row (Qwen2.5-Coder 1.5B, 256 and 4096 tokens: benchmarks/results/verification-pass-1.5b.json).
_READ, _READ_BY_ROW = 0.6, 0.4


@dataclass(frozen=True, slots=True)
class Costs:
    """Of the passes of a target and its draft models, in seconds, so that what passes take can correct them.

    Attributes:
        target: The target's.
        drafts: Each draft model's, by the name of its drafter. One that is missing is measured.
    """

    target: PassCosts
    drafts: Mapping[str, PassCosts] = field(default_factory=dict)


def measure(
    backend: Backend, clock: Callable[[], float], *, rows: Sequence[int] = TARGET_ROWS, cache_share: float = 0.0
) -> PassCosts:
    """Return what a model's passes cost, in seconds: measured at empty caches, the shortest of two each.

    Args:
        backend: Has room for the most rows.
        clock: Seconds from any fixed moment.
        rows: Ascending from 1, at least two. More than 64 of them are timed as the reading of a prompt, without logits.
        cache_share: Bytes that a token takes in a cache, by those of the weights. To measure what reading them takes
            would take as long as reading a long prompt.
    """
    shapes = [PassShape(count, reads=count > 64) for count in rows]
    times = [min(taken) for taken in pass_seconds(backend, shapes, clock, repeats=2)]
    first, *others = zip(rows, times, strict=True)
    one = first[1] if first[1] > 0 else 1.0
    share = one * cache_share
    return PassCosts(rising([(1, one), *others]), _READ * share, _READ_BY_ROW * share)


def least(visits: Sequence[PassCosts]) -> PassCosts | None:
    """Return the lowest of what several visits to a model measured; None of none.

    What disturbs a pass only ever makes it longer.
    """
    if not visits:
        return None
    points = tuple(min(points) for points in zip(*(one.points for one in visits), strict=True))
    slopes = (min(one.per_context for one in visits), min(one.per_row_context for one in visits))
    return PassCosts(points, *slopes)
