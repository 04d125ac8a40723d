"""How long passes take, measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.backends.base import Backend, Rows

_REPEATS = 3


def pass_seconds(backend: Backend, rows: Sequence[int], clock: Callable[[], float]) -> list[float]:
    """Return the time of a pass for each number of rows, the shortest of a few.

    A first pass that is not counted warms the memory up. All numbers of rows take turns, so that what slows the machine
    down for a while slows them alike. The sequences are short: what grows with the context is left out.

    Args:
        backend: Has room for a sequence of the most rows.
        rows: Numbers of rows, each with its logits.
        clock: Seconds from any fixed moment.
    """
    sequence_id = backend.open_sequence()
    try:
        backend.forward([Rows(sequence_id, [0])])
        backend.crop(sequence_id, 0)
        turns = [[_one_pass(backend, sequence_id, count, clock) for count in rows] for _ in range(_REPEATS)]
        return [min(times) for times in zip(*turns, strict=True)]
    finally:
        backend.close_sequence(sequence_id)


def _one_pass(backend: Backend, sequence_id: int, count: int, clock: Callable[[], float]) -> float:
    started_at = clock()
    backend.forward([Rows(sequence_id, [0] * count, num_logits=count)])
    seconds = clock() - started_at
    backend.crop(sequence_id, 0)
    return seconds
