"""Which requests take part in a round. Knows nothing of tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from outrider.engine.outputs import EmittedToken
from outrider.engine.sequence import Request, Sequence
from outrider.engine.step import Stepper


def run(
    stepper: Stepper, requests: Iterable[Request], *, max_sequences: int, clock: Callable[[], float]
) -> Iterator[tuple[Sequence, tuple[EmittedToken, ...]]]:
    """Answer requests in order, at most ``max_sequences`` side by side; yield what each round adds to each answer.

    Whatever ends the iteration early, an error or the consumer, frees all caches.
    """
    waiting = deque(requests)
    active: list[Sequence] = []
    try:
        while waiting or active:
            while waiting and len(active) < max_sequences:
                active.append(stepper.open(waiting.popleft()))
                active[-1].started_at = clock()
            emitted = list(zip(active, stepper.step(active), strict=True))
            now = clock()
            for sequence in list(active):
                sequence.last_token_at = now
                if sequence.first_token_at is None:
                    sequence.first_token_at = now
                if sequence.finish_reason is not None:
                    active.remove(sequence)
                    stepper.close(sequence)
            yield from emitted
    finally:
        for sequence in active:
            stepper.close(sequence)
