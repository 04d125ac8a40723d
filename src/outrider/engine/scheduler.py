"""Continuous batching: which requests take part in a round, and how much of their prompts is read in it.

Requests join and leave between rounds. A prompt is read piece by piece in the passes of the others' rounds, so that
nobody waits for it, and what two prompts begin with is read once. A request's text does not depend on any of this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator

from outrider.backends.prefill import PIECE
from outrider.backends.prefixes import PrefixCache, as_ids, common_length, rounded
from outrider.drafters.base import KeepsContexts
from outrider.engine.outputs import EmittedToken
from outrider.engine.pace import Pace
from outrider.engine.sequence import Request, Sequence
from outrider.engine.step import NO_LIMITS, PROMPT_ROWS, Limits, Stepper
from outrider.errors import UsageError

# To share fewer tokens than this is not worth a fork, nor waiting for another request to have read them.
_WORTH_SHARING = 16

# A sequence and what a round added to it. Its finish reason says whether it has ended.
Progress = tuple[Sequence, tuple[EmittedToken, ...]]


class Scheduler:
    """Answers requests side by side, in the order in which they came; used by one thread.

    Args:
        stepper: Runs the rounds.
        max_sequences: How many requests are worked on at a time.
        clock: Seconds from any fixed moment.
        max_cached_tokens: How many tokens the target's caches may hold, what is shared counted for each; each draft
            model's hold no more. When there is no room for a request it waits; when those at work outgrow it, the
            youngest waits, and reads its tokens again. None for as many as it takes.
        keeps_prefixes: Keep what has been read, by draft models that can, too, as far as there is room, for requests
            that begin alike.
        cache_grain: The caches grow by so many tokens.
        bounds_rounds: Let no round take long that several wait for, also where the target reads nothing. Otherwise
            drafts are as long as pays, or as was asked for, and what a draft model reads it reads at once.

    Raises:
        UsageError: ``max_cached_tokens`` is less than one request may take.
    """

    def __init__(  # noqa: PLR0913 - each is a limit of its own
        self,
        stepper: Stepper,
        *,
        max_sequences: int,
        clock: Callable[[], float],
        max_cached_tokens: int | None = None,
        keeps_prefixes: bool = False,
        cache_grain: int = 1,
        bounds_rounds: bool = True,
    ) -> None:
        longest = rounded(stepper.target.max_length, cache_grain)
        if max_cached_tokens is not None and max_cached_tokens < longest:
            raise UsageError(
                f"max_cached_tokens is {max_cached_tokens}; one request may take {longest}, so raise it, or lower "
                "ctx_size"
            )
        self._stepper = stepper
        self._max_sequences = max_sequences
        self._clock = clock
        self._bounds_rounds = bounds_rounds
        self._max_tokens = max_cached_tokens
        self._max_kept = (max_cached_tokens or longest) if keeps_prefixes else 0
        self._prefixes = PrefixCache(stepper.target, self._max_kept, grain=cache_grain)
        self._grain = cache_grain
        self._let_drafter_keep(self._max_kept)
        self._waiting: deque[Sequence] = deque()
        self._live: list[Sequence] = []  # the youngest last
        self._pace = Pace()

    @property
    def num_waiting(self) -> int:
        """How many requests wait for their turn."""
        return len(self._waiting)

    @property
    def num_live(self) -> int:
        """How many requests are worked on."""
        return len(self._live)

    @property
    def round_s(self) -> float:
        """How long a round takes at present that reads no prompt; 0 if there was none."""
        return self._pace.round_s

    @property
    def is_reading(self) -> bool:
        """Whether the next round reads a prompt beside whatever it answers."""
        return any(self._stepper.num_unread(sequence) > 1 for sequence in self._live)

    @property
    def num_cached_tokens(self) -> int:
        """How many tokens the target's caches hold, what is shared counted for each."""
        lengths = (self._stepper.target.length(sequence.cache_id) for sequence in self._live)
        return self._prefixes.num_tokens + sum(lengths)

    def submit(self, request: Request) -> Sequence:
        """Put a request at the end of the queue."""
        sequence = self._stepper.open(request)
        sequence.submitted_at = sequence.last_token_at = self._clock()
        self._waiting.append(sequence)
        return sequence

    def cancel(self, request_id: Hashable) -> Sequence | None:
        """Drop a request, free its place and its caches, and return it; None if it is unknown or has ended."""
        for held in (self._waiting, self._live):
            for sequence in held:
                if sequence.request.request_id == request_id:
                    held.remove(sequence)
                    self._retire(sequence)
                    return sequence
        return None

    def step(self) -> list[Progress]:
        """Run one round and return what it added, to each request that emitted something or has ended."""
        started_at = self._clock()
        self._admit(started_at)
        self._make_room()
        going, reading = self._share_out()
        if not going and not reading:
            return []
        num_unread, num_drafted = self._num_unread(going, reading), _num_drafted(going)
        emitted = self._run(going, reading)
        now = self._clock()
        if going:
            num_read = num_unread - self._num_unread((), reading)
            self._pace.observe(now - started_at, num_read, _num_drafted(going) - num_drafted)
        for sequence in emitted:
            sequence.last_token_at = now
            if sequence.first_token_at is None:
                sequence.first_token_at = now
        ended = [sequence for sequence in self._live if sequence.finish_reason is not None]
        self._live = [sequence for sequence in self._live if sequence.finish_reason is None]
        self._admit(now, [sequence for sequence in ended if sequence.error is None])
        for sequence in ended:
            self._retire(sequence)
        return [*emitted.items(), *((sequence, ()) for sequence in ended if sequence not in emitted)]

    def close(self) -> None:
        """Drop all requests and free all caches."""
        for sequence in (*self._waiting, *self._live):
            self._stepper.close(sequence)
        self._waiting.clear()
        self._live.clear()
        self._prefixes.clear()
        self._let_drafter_keep(0)

    def _let_drafter_keep(self, max_tokens: int) -> None:
        """Let draft models keep what they read from now on, at most so many tokens; free what they have kept.

        Without a wish to keep anything they are left as they are: another scheduler may have one.
        """
        drafter: object = self._stepper.drafter
        if self._max_kept and isinstance(drafter, KeepsContexts):
            drafter.keep_contexts(max_tokens, self._grain)

    def _admit(self, now: float, ended: Iterable[Sequence] = ()) -> None:
        """Let requests in as long as there are places and room, those first that came first.

        Args:
            now: What the clock says.
            ended: Sequences whose caches are there yet, to begin from.
        """
        for sequence in list(self._waiting):
            if len(self._live) == self._max_sequences or not self._has_room(sequence):
                return
            if self._begin(sequence, (*self._live, *ended)):
                self._waiting.remove(sequence)
                self._live.append(sequence)
                if sequence.started_at is None:
                    sequence.started_at = now

    def _has_room(self, sequence: Sequence) -> bool:
        if self._max_tokens is None or not self._live:
            return True
        needed = sum(map(self._needed, (*self._live, sequence)))
        while needed + self._prefixes.num_tokens > self._max_tokens:
            if needed > self._max_tokens or not self._prefixes.drop_oldest():
                return False
        return True

    def _make_room(self) -> None:
        """Free what the next round may need: kept prefixes first, then the youngest requests' caches."""
        limit = self._max_tokens
        while limit is not None and sum(map(self._needed, self._live)) + self._prefixes.num_tokens > limit:
            if self._prefixes.drop_oldest():
                continue
            if len(self._live) == 1:
                return
            youngest = self._live.pop()
            self._stepper.unload(youngest)
            self._waiting.appendleft(youngest)

    def _needed(self, sequence: Sequence) -> int:
        """Return how many tokens a sequence's cache may hold after its next round."""
        length = min(len(sequence.token_ids) + self._stepper.max_draft_tokens, self._stepper.target.max_length)
        return rounded(length, self._grain)

    def _begin(self, sequence: Sequence, others: Iterable[Sequence]) -> bool:
        """Let a sequence begin with what has been read of it already; return False if it should wait for more of it."""
        wanted = as_ids(sequence.token_ids[:-1])
        source = None if sequence.is_prompt_unread else self._prefixes.longest(wanted)
        cache_id, best = source or (0, 0)
        awaited, heard = 0, None
        for other in others:
            if sequence.is_prompt_unread and not _ask_the_same(sequence, other):
                continue
            common = common_length(wanted, as_ids(other.token_ids[:-1]))
            held = min(common, self._stepper.target.length(other.cache_id))
            awaited = max(awaited, common if other.finish_reason is None else held)
            if held > best:
                cache_id, best, heard = other.cache_id, held, other.prompt_logprobs
        if awaited >= best + _WORTH_SHARING or (awaited > best and sequence.is_prompt_unread):
            return False
        if best >= _WORTH_SHARING or (best > 0 and sequence.is_prompt_unread):
            self._stepper.share(sequence, cache_id, best)
            if sequence.started_at is None:
                sequence.num_cached_tokens = best
            if sequence.is_prompt_unread:
                sequence.prompt_logprobs = heard
        return True

    def _share_out(self) -> tuple[list[Sequence], list[tuple[Sequence, int]]]:
        """Return the sequences that emit in the next round, and how much each of the others reads in it."""
        unread = {sequence: self._stepper.num_unread(sequence) for sequence in self._live}
        budget = self._pace.budget if 1 in unread.values() else PIECE
        going, reading = [], []
        for sequence, count in unread.items():
            if count == 1:
                going.append(sequence)
            elif sequence.is_prompt_unread and budget > 0:
                reading.append((sequence, min(count - 1, budget, PROMPT_ROWS)))
                budget -= reading[-1][1]
            elif count <= budget:
                going.append(sequence)
                budget -= count
            elif budget > 0:
                reading.append((sequence, budget))
                budget = 0
        return going, reading

    def _num_unread(self, going: Iterable[Sequence], reading: Iterable[tuple[Sequence, int]]) -> int:
        """Return how many tokens are to be read, of those that emit but for the last."""
        num_unread = self._stepper.num_unread
        return sum(num_unread(one) - 1 for one in going) + sum(num_unread(one) for one, _ in reading)

    def _limits(self, going: list[Sequence], reading: list[tuple[Sequence, int]]) -> Limits:
        if len(self._live) == 1:
            return NO_LIMITS
        draft_reading = self._pace.draft_reading if self._bounds_rounds else None
        num_unread = self._num_unread(going, reading)
        if not going or (num_unread == 0 and (len(going) == 1 or not self._bounds_rounds)):
            return Limits(draft_reading)
        draft_tokens, rows = self._pace.draft_tokens(len(going), num_unread), self._pace.rows(len(going))
        return Limits(draft_reading, draft_tokens, rows)

    def _run(
        self, going: list[Sequence], reading: list[tuple[Sequence, int]]
    ) -> dict[Sequence, tuple[EmittedToken, ...]]:
        """Run a round. If it fails, run each sequence's by itself, and end those that fail again."""
        try:
            emitted = self._stepper.step(going, reading, self._limits(going, reading))
            return dict(zip(going, emitted, strict=True))
        except Exception as error:  # noqa: BLE001 - of whatever kind, the others must go on
            self._prefixes.clear()  # which may be all that it takes
            self._let_drafter_keep(self._max_kept)
            if len(going) + len(reading) == 1:
                (*going, *(sequence for sequence, _ in reading))[0].fail(error)
                return {}
        retried: dict[Sequence, tuple[EmittedToken, ...]] = {}
        for sequence in going:
            retried |= self._run([sequence], [])
        for one in reading:
            retried |= self._run([], [one])
        return retried

    def _retire(self, sequence: Sequence) -> None:
        """Free a sequence's caches, but for what may be of use to others."""
        length = self._stepper.target.length(sequence.cache_id)
        if sequence.error is None:
            self._prefixes.add(sequence.cache_id, sequence.token_ids[:length])
        self._stepper.close(sequence)


def _num_drafted(sequences: Iterable[Sequence]) -> int:
    return sum(sequence.counters.num_draft_tokens for sequence in sequences)


def _ask_the_same(one: Sequence, other: Sequence) -> bool:
    """Whether two requests want to know the same of the same prompt."""
    same = one.request.prompt_ids == other.request.prompt_ids
    return same and one.params.prompt_logprobs == other.params.prompt_logprobs and other.prompt_logprobs is not None


def run(
    stepper: Stepper, requests: Iterable[Request], *, max_sequences: int, clock: Callable[[], float]
) -> Iterator[Progress]:
    """Answer requests in order, at most ``max_sequences`` side by side; yield what each round adds to each answer.

    Whatever ends the iteration early, an error or the consumer, frees all caches.
    """
    scheduler = Scheduler(stepper, max_sequences=max_sequences, clock=clock, bounds_rounds=False)
    try:
        for request in requests:
            scheduler.submit(request)
        while scheduler.num_waiting or scheduler.num_live:
            yield from scheduler.step()
    finally:
        scheduler.close()
