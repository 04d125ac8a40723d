"""Which requests take part in a round. Knows nothing of tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from outrider.engine.outputs import EmittedToken
from outrider.engine.sequence import ReadPrompt, Request, Sequence
from outrider.engine.step import Stepper


def run(
    stepper: Stepper, requests: Iterable[Request], *, max_sequences: int, clock: Callable[[], float]
) -> Iterator[tuple[Sequence, tuple[EmittedToken, ...]]]:
    """Answer requests in order, at most ``max_sequences`` side by side; yield what each round adds to each answer.

    The ``n`` answers to a prompt stand one after the other, and the target reads their prompt once. Whatever ends the
    iteration early, an error or the consumer, frees all caches.
    """
    waiting = deque(requests)
    active: list[Sequence] = []
    prompt: ReadPrompt | None = None  # of the request whose n answers are being opened
    try:
        while waiting or active:
            while waiting and len(active) < max_sequences:
                request, started_at = waiting.popleft(), clock()
                if request.params.n > 1 and prompt is None:
                    prompt = stepper.read(request)
                active.append(stepper.open(request, prompt))
                active[-1].started_at = active[-1].last_token_at = started_at
                if prompt is not None and request.choice == request.params.n - 1:
                    stepper.forget(prompt)
                    prompt = None
            going = [sequence for sequence in active if sequence.error is None]
            emitted = dict(zip(going, stepper.step(going), strict=True)) if going else {}
            now = clock()
            for sequence in list(active):
                if emitted.get(sequence):
                    sequence.last_token_at = now
                    if sequence.first_token_at is None:
                        sequence.first_token_at = now
                if sequence.finish_reason is not None:
                    active.remove(sequence)
                    stepper.close(sequence)
                yield sequence, emitted.get(sequence, ())
    finally:
        if prompt is not None:
            stepper.forget(prompt)
        for sequence in active:
            stepper.close(sequence)
