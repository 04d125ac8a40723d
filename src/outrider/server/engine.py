"""The one thread that owns the models, and the way there and back for everybody else.

Requests go in by a queue and their tokens come out by the event loop, once a round. Nothing here waits for a client:
what a client has not read yet is held up to a limit, and beyond it the client is too slow and its request ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from outrider.engine.llm import LLM
from outrider.engine.outputs import EmittedToken, GenerationOutput
from outrider.engine.scheduler import Progress, Scheduler
from outrider.engine.sequence import Request
from outrider.server.problems import ApiError

# Tokens of one ticket that nobody has read yet. A reader who is there takes them within a few rounds.
MAX_UNREAD = 8192
# Rounds shorter than this are handed over together. Nobody sees the difference, and to wake the event loop, and through
# it the client, takes the processor from the next round: of a small model's rounds of 3 ms it would take a tenth.
_HAND_OVER_S = 0.008


@dataclass(frozen=True, slots=True)
class Event:
    """What a round added to one answer.

    Attributes:
        choice: Which of the ticket's requests it is.
        tokens: What it emitted.
        output: The whole answer, if it has ended.
        queued_s: How long it had waited for its turn, if it has ended.
        gap_s: Since the tokens before these; None for the first.
        num_draft_tokens: Drafted for the answer so far.
    """

    choice: int
    tokens: tuple[EmittedToken, ...]
    output: GenerationOutput | None = None
    queued_s: float = 0.0
    gap_s: float | None = None
    num_draft_tokens: int = 0


@dataclass(slots=True)
class _Place:
    """Where what becomes of a request goes, and when it last got tokens."""

    ticket: Ticket
    choice: int
    last_at: float | None = None


@dataclass(eq=False, slots=True)
class Ticket:
    """Requests that were let in together, and what has come of them. Belongs to the event loop."""

    requests: Sequence[Request]
    events: list[Event] = field(default_factory=list)
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    problem: ApiError | None = None
    num_open: int = 0
    num_unread: int = 0

    async def read(self) -> list[Event]:
        """Return what has come since the last time, at least one event.

        Raises:
            ApiError: Nothing more will come.
        """
        while not self.events:
            if self.problem is not None:
                raise self.problem
            self.is_ready.clear()
            await self.is_ready.wait()
        events, self.events, self.num_unread = self.events, [], 0
        return events


class Engine:
    """Answers tickets, side by side.

    Args:
        llm: Nobody else uses it from :meth:`start` to :meth:`stop`.
        max_sequences: How many requests are worked on at a time.
        max_waiting: How many more may wait.
        max_cached_tokens: See :class:`outrider.engine.scheduler.Scheduler`.
        observe: Is told of every round in the engine's thread: what it added, the requests at work, those that wait.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        max_sequences: int,
        max_waiting: int,
        max_cached_tokens: int,
        observe: Callable[[Sequence[Event], Scheduler], None],
    ) -> None:
        self.llm = llm
        self.max_sequences = max_sequences
        self.max_waiting = max_waiting
        self.max_cached_tokens = max_cached_tokens
        self.num_open = 0  # requests let in that have not ended, as the event loop knows it
        self._observe = observe
        self._scheduler = llm.scheduler(max_sequences=max_sequences, max_cached_tokens=max_cached_tokens)
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # The engine thread's: what is open by request id, and what has not been handed over.
        self._places: dict[Hashable, _Place] = {}
        self._pairs: list[tuple[Ticket, Event]] = []
        self._handed_over_at = -1.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="outrider-engine", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; answers go to this loop."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """Drop what is open, free all caches and end the thread."""
        self._commands.put(None)
        self._thread.join()

    def check_count(self, count: int) -> None:
        """Check that so many answers may be asked for at once.

        Raises:
            ApiError: There would never be room for them.
        """
        limit = self.max_sequences + self.max_waiting
        if count > limit:
            raise ApiError(400, f"{count} answers are asked for at once; the limit is {limit}", param="n")

    def submit(self, requests: Sequence[Request]) -> Ticket:
        """Let requests in.

        Raises:
            ApiError: There are too many.
        """
        self.check_count(len(requests))
        if self.num_open + len(requests) > self.max_sequences + self.max_waiting:
            waiting = max(0, self.num_open - self.max_sequences)
            raise ApiError(
                429,
                f"{waiting} requests are waiting, and at most {self.max_waiting} may; try again later",
                code="queue_full",
                headers={"Retry-After": str(1 + waiting // self.max_sequences)},
            )
        ticket = Ticket(requests, num_open=len(requests))
        self.num_open += len(requests)
        self._commands.put(lambda: self._enter(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Give up what of a ticket has not ended; its places are free before the next round."""
        self.num_open -= ticket.num_open
        ticket.num_open = 0
        self._commands.put(lambda: self._leave(ticket))

    def _enter(self, ticket: Ticket) -> None:
        for choice, request in enumerate(ticket.requests):
            self._places[request.request_id] = _Place(ticket, choice)
            self._scheduler.submit(request)

    def _leave(self, ticket: Ticket) -> None:
        for request in ticket.requests:
            if self._places.pop(request.request_id, None) is not None:
                self._scheduler.cancel(request.request_id)

    def _work(self) -> None:
        """Run rounds as long as there is anything to answer; otherwise sleep until there is."""
        while True:
            is_idle = not (self._scheduler.num_live or self._scheduler.num_waiting)
            try:
                while is_idle or not self._commands.empty():
                    command = self._commands.get()
                    if command is None:
                        self._scheduler.close()
                        return
                    command()
                    is_idle = False
                self._report(self._scheduler.step())
            except Exception as error:  # noqa: BLE001 - the server must outlive whatever this is
                self._start_anew(error)

    def _report(self, progress: Sequence[Progress]) -> None:
        events, has_ended, now = [], False, self._handed_over_at
        for sequence, tokens in progress:
            place = self._places[sequence.request.request_id]
            output, queued_s = None, 0.0
            gap_s = None if place.last_at is None or not tokens else sequence.last_token_at - place.last_at
            place.last_at = sequence.last_token_at
            if sequence.finish_reason is not None:
                output = self.llm.output(sequence)
                queued_s = (sequence.started_at or sequence.submitted_at) - sequence.submitted_at
                del self._places[sequence.request.request_id]
                has_ended = True
            now = max(now, sequence.last_token_at)
            num_drafted = sequence.counters.num_draft_tokens
            events.append(Event(place.choice, tokens, output, queued_s, gap_s, num_drafted))
            self._pairs.append((place.ticket, events[-1]))
        self._observe(events, self._scheduler)
        if self._loop is not None and (has_ended or now - self._handed_over_at >= _HAND_OVER_S):
            self._loop.call_soon_threadsafe(self._deliver, self._pairs)
            self._pairs, self._handed_over_at = [], now

    def _start_anew(self, error: Exception) -> None:
        """Give up everything that is open after a mistake of our own, and begin with an empty scheduler."""
        self._scheduler.close()
        self._scheduler = self.llm.scheduler(max_sequences=self.max_sequences, max_cached_tokens=self.max_cached_tokens)
        tickets = {id(place.ticket): place.ticket for place in self._places.values()}
        self._places.clear()
        self._pairs = []
        problem = ApiError(500, f"the engine failed: {type(error).__name__}: {error}")
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._fail, list(tickets.values()), problem)

    def _deliver(self, pairs: Sequence[tuple[Ticket, Event]]) -> None:
        """Hand a round's tokens to their readers; in the event loop."""
        for ticket, event in pairs:
            if ticket.num_open == 0:
                continue
            if event.output is not None:
                ticket.num_open -= 1
                self.num_open -= 1
            ticket.events.append(event)
            ticket.num_unread += len(event.tokens)
            if ticket.num_unread > MAX_UNREAD and ticket.num_open:
                self._fail([ticket], ApiError(408, f"more than {MAX_UNREAD} tokens wait to be read; read faster"))
                self.cancel(ticket)
            ticket.is_ready.set()

    def _fail(self, tickets: Sequence[Ticket], problem: ApiError) -> None:
        for ticket in tickets:
            self.num_open -= ticket.num_open
            ticket.num_open = 0
            ticket.problem = problem
            ticket.is_ready.set()
