"""The one thread that owns the models, and the way there and back for everybody else.

Requests go in by a queue and their tokens come out by the event loop, those of a few rounds together where rounds
are short. Nothing here waits for a client: what a client has not read yet is held up to a limit, and beyond it the
client is too slow and its request ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from queue import SimpleQueue

from outrider.engine.llm import LLM
from outrider.engine.outputs import EmittedToken, GenerationOutput
from outrider.engine.scheduler import Progress
from outrider.engine.sequence import Request
from outrider.engine.sequence import Sequence as Answer
from outrider.server.metrics import Metrics
from outrider.server.problems import ApiError

# Tokens of one stream that nobody has read yet. A reader who is there takes them within a few rounds.
MAX_UNREAD = 8192
# Tokens are handed over before they are this old, as far as rounds are shorter: thirty times a second is all that an
# eye asks for. To wake the event loop, and through it the client, takes half a millisecond from the passes: a tenth of
# a small model's round.
_HAND_OVER_S = 1 / 30
# Where there are others, whose drafts may make the next round long, those of two rounds are the most; and of one, where
# a prompt is about to make it longer.
_HAND_OVER_ROUNDS = 2.25


@dataclass(frozen=True, slots=True)
class Event:
    """What one answer got since the last event.

    Attributes:
        choice: Which of the ticket's requests it is.
        tokens: What its rounds emitted.
        output: The whole answer, if it has ended.
        queued_s: How long it had waited for its turn, if it has ended.
        num_draft_tokens: Drafted for the answer so far.
    """

    choice: int
    tokens: tuple[EmittedToken, ...]
    output: GenerationOutput | None = None
    queued_s: float = 0.0
    num_draft_tokens: int = 0


@dataclass(slots=True)
class _Place:
    """Where what becomes of a request goes, and what has not been handed over of it.

    Attributes:
        tokens: As long as its ticket is read as it grows; all are at hand in the end.
        num_tokens: How many tokens came.
        gaps: What each round since the first took, by its tokens, in seconds.
        last_at: When it last got tokens.
    """

    ticket: Ticket
    choice: int
    tokens: list[EmittedToken] = field(default_factory=list)
    num_tokens: int = 0
    gaps: list[float] = field(default_factory=list)
    last_at: float | None = None


@dataclass(eq=False, slots=True)
class Ticket:
    """Requests that were let in together, and what has come of them. Belongs to the event loop.

    Attributes:
        requests: By choice.
        is_streamed: Whether it is told of answers as they grow, and not only when they have ended.
        events: What has not been read, by choice.
        problem: Why nothing more will come.
        num_open: How many of the requests have not ended.
        num_unread: Tokens in ``events``.
    """

    requests: Sequence[Request]
    is_streamed: bool = True
    events: dict[int, Event] = field(default_factory=dict)
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    problem: ApiError | None = None
    num_open: int = 0
    num_unread: int = 0

    async def read(self) -> list[Event]:
        """Return what has come since the last time, at least one event, and no more than one for each choice.

        Raises:
            ApiError: Nothing more will come.
        """
        while not self.events:
            if self.problem is not None:
                raise self.problem
            self.is_ready.clear()
            await self.is_ready.wait()
        events, self.events, self.num_unread = self.events, {}, 0
        return list(events.values())

    def add(self, event: Event) -> None:
        """Put an event to those that have not been read."""
        before = self.events.get(event.choice)
        if before is not None:
            event = replace(event, tokens=before.tokens + event.tokens)
        self.events[event.choice] = event
        self.num_unread += len(event.tokens) - (0 if before is None else len(before.tokens))
        self.is_ready.set()


class Engine:
    """Answers tickets, side by side.

    Args:
        llm: Nobody else uses it from :meth:`start` to :meth:`stop`.
        max_sequences: How many requests are worked on at a time.
        max_waiting: How many more may wait.
        max_cached_tokens: See :class:`outrider.engine.scheduler.Scheduler`.
        metrics: Is told of what happens in the engine's thread.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        max_sequences: int,
        max_waiting: int,
        max_cached_tokens: int,
        metrics: Metrics,
    ) -> None:
        self.llm = llm
        self.max_sequences = max_sequences
        self.max_waiting = max_waiting
        self.max_cached_tokens = max_cached_tokens
        self.num_open = 0  # requests let in that have not ended, as the event loop knows it
        self._tickets: set[Ticket] = set()  # those of these requests; the event loop's
        self._metrics = metrics
        self._scheduler = llm.scheduler(max_sequences=max_sequences, max_cached_tokens=max_cached_tokens)
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # The engine thread's: what is open by request id, and whose tokens have not been handed over.
        self._places: dict[Hashable, _Place] = {}
        self._news: dict[Answer, _Place] = {}
        self._reported_at = self._handed_over_at = 0.0
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

    def submit(self, requests: Sequence[Request], *, is_streamed: bool = True) -> Ticket:
        """Let requests in.

        Args:
            requests: At least one.
            is_streamed: Tell the ticket of the answers as they grow.

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
        ticket = Ticket(requests, is_streamed, num_open=len(requests))
        self._tickets.add(ticket)
        self.num_open += len(requests)
        self._commands.put(lambda: self._enter(ticket))
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Give up what of a ticket has not ended; its places are free before the next round."""
        self._tickets.discard(ticket)
        self.num_open -= ticket.num_open
        ticket.num_open = 0
        self._commands.put(lambda: self._leave(ticket))

    def give_up(self, problem: ApiError) -> None:
        """Tell the readers of all that has not ended that nothing more will come."""
        open_tickets = [ticket for ticket in self._tickets if ticket.num_open]
        self._fail(open_tickets, problem)
        for ticket in open_tickets:
            self.cancel(ticket)

    def _enter(self, ticket: Ticket) -> None:
        for choice, request in enumerate(ticket.requests):
            self._places[request.request_id] = _Place(ticket, choice)
            self._scheduler.submit(request)
        self._hand_over(self._reported_at)  # for the next round, which reads of the prompt, is longer than the last

    def _leave(self, ticket: Ticket) -> None:
        for request in ticket.requests:
            place = self._places.pop(request.request_id, None)
            if place is None:
                continue
            answer = self._scheduler.cancel(request.request_id)
            if answer is not None:
                self._news.pop(answer, None)
                self._metrics.count(place.num_tokens, place.gaps)
                self._metrics.abort(answer)
        self._metrics.load(self._scheduler)

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
        """Take note of a round, and hand over what there is before it is too old, first tokens and ends at once."""
        is_due, now = False, self._reported_at
        for answer, tokens in progress:
            place = self._places[answer.request.request_id]
            now = answer.last_token_at
            if tokens:
                if place.last_at is None:
                    is_due = True
                else:
                    place.gaps.append((now - place.last_at) / len(tokens))
                place.last_at = now
                place.num_tokens += len(tokens)
                if place.ticket.is_streamed:
                    place.tokens += tokens
            self._news[answer] = place
            is_due = is_due or answer.finish_reason is not None
        next_at = now + (now - self._reported_at)
        self._reported_at = now
        patience_s = _HAND_OVER_S
        if len(self._places) > 1:
            patience_s = min(patience_s, _HAND_OVER_ROUNDS * self._scheduler.round_s)
        is_due = is_due or self._scheduler.is_reading
        if is_due or next_at > self._handed_over_at + patience_s:
            self._hand_over(now)

    def _hand_over(self, now: float) -> None:
        pairs = []
        for answer, place in self._news.items():
            event = self._event(answer, place)
            self._metrics.count(place.num_tokens, place.gaps)
            if event.output is not None:
                self._metrics.end(event.output, event.queued_s)
            if event.output is not None or place.ticket.is_streamed:
                pairs.append((place.ticket, event))
            place.tokens, place.num_tokens, place.gaps = [], 0, []
        for answer in self._news:
            if answer.finish_reason is not None:  # kept until now, for a mistake to be told to whoever waits
                del self._places[answer.request.request_id]
        self._metrics.load(self._scheduler)
        self._news, self._handed_over_at = {}, now
        if pairs and self._loop is not None:
            self._loop.call_soon_threadsafe(self._deliver, pairs)

    def _event(self, answer: Answer, place: _Place) -> Event:
        num_drafted = answer.counters.num_draft_tokens
        if answer.finish_reason is None:
            return Event(place.choice, tuple(place.tokens), num_draft_tokens=num_drafted)
        queued_s = (answer.started_at or answer.submitted_at) - answer.submitted_at
        tokens = place.tokens if place.ticket.is_streamed else answer.emitted
        return Event(place.choice, tuple(tokens), self.llm.output(answer), queued_s, num_drafted)

    def _start_anew(self, error: Exception) -> None:
        """Give up everything that is open after a mistake of our own, and begin with an empty scheduler."""
        self._scheduler.close()
        self._scheduler = self.llm.scheduler(max_sequences=self.max_sequences, max_cached_tokens=self.max_cached_tokens)
        tickets = {id(place.ticket): place.ticket for place in self._places.values()}
        self._places.clear()
        self._news.clear()
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
            ticket.add(event)
            if ticket.is_streamed and ticket.num_unread > MAX_UNREAD and ticket.num_open:
                self._fail([ticket], ApiError(408, f"more than {MAX_UNREAD} tokens wait to be read; read faster"))
                self.cancel(ticket)

    def _fail(self, tickets: Sequence[Ticket], problem: ApiError) -> None:
        for ticket in tickets:
            self.num_open -= ticket.num_open
            ticket.num_open = 0
            ticket.problem = problem
            ticket.is_ready.set()
