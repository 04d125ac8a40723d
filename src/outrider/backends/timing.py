"""How long passes take, measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import PIECE


@dataclass(frozen=True, slots=True)
class PassShape:
    """What a pass computes.

    Attributes:
        rows: Of each sequence.
        context: How many tokens the cache of each sequence holds before.
        sequences: How many take part.
        reads: Whether it reads a prompt: no logits are wanted, which are wanted at every row otherwise.
    """

    rows: int
    context: int = 0
    sequences: int = 1
    reads: bool = False


def pass_seconds(
    backend: Backend, shapes: Sequence[PassShape], clock: Callable[[], float], *, repeats: int = 3
) -> list[tuple[float, ...]]:
    """Return how long passes of each shape took, in seconds, ``repeats`` times.

    A first pass that is not counted warms the memory up. All shapes of a context take turns, so that what slows the
    machine down for a while slows them alike. Each sequence has a cache of its own, which has to be filled first: that
    takes as long as reading a prompt of ``context`` tokens.

    Args:
        backend: Has room for the caches.
        shapes: Of which each is measured, in any order.
        clock: Seconds from any fixed moment.
        repeats: At least 1. Of few take the shortest: what disturbs a pass only ever makes it longer.
    """
    count = max(shape.sequences for shape in shapes)
    sequence_ids = [backend.open_sequence() for _ in range(count)]
    taken: dict[PassShape, tuple[float, ...]] = {}
    try:
        backend.forward([Rows(sequence_ids[0], [0])])
        backend.crop(sequence_ids[0], 0)
        for context in sorted({shape.context for shape in shapes}):
            turns = [shape for shape in dict.fromkeys(shapes) if shape.context == context]
            for sequence_id in sequence_ids[: max(shape.sequences for shape in turns)]:
                _fill(backend, sequence_id, context)
            times = [[_one_pass(backend, sequence_ids, shape, clock) for shape in turns] for _ in range(repeats)]
            taken.update(zip(turns, zip(*times, strict=True), strict=True))
        return [taken[shape] for shape in shapes]
    finally:
        for sequence_id in sequence_ids:
            backend.close_sequence(sequence_id)


def _fill(backend: Backend, sequence_id: int, context: int) -> None:
    while (missing := context - backend.length(sequence_id)) > 0:
        backend.forward([Rows(sequence_id, [0] * min(PIECE, missing), num_logits=0)])


def _one_pass(backend: Backend, sequence_ids: Sequence[int], shape: PassShape, clock: Callable[[], float]) -> float:
    taking_part = sequence_ids[: shape.sequences]
    num_logits = 0 if shape.reads else shape.rows
    batch = [Rows(sequence_id, [0] * shape.rows, num_logits=num_logits) for sequence_id in taking_part]
    started_at = clock()
    backend.forward(batch)
    seconds = clock() - started_at
    for sequence_id in taking_part:
        backend.crop(sequence_id, shape.context)
    return seconds
