"""What a controller of drafts knows and may risk, learned from outcomes alone.

Pure: knows no tokens, models or clocks. A unit of cost is a pass of one row of the target.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from outrider.drafters.gain import Rate

MEMORY = 0.9  # what a round counts for in the record of a request, one round later
# What a drafter may lose of each request against plain decoding, at most: this much at first, and this share of what
# plain decoding would have cost since.
TRIAL, SHARE = 2.5, 0.005
MOST_CREDIT = 12.0  # what was gained before may be lost again only so far
GUESS = 50  # tokens that an answer is expected to have, before there was any


@dataclass(slots=True)
class Record:
    """What a drafter has done, a round long ago counting less than the last.

    Attributes:
        rounds: That it drafted in.
        passes: Of its model, one for each token of a chain.
        drafted: Tokens in them.
        accepted: Of those.
    """

    rounds: float
    passes: float
    drafted: float
    accepted: float

    def observe(self, passes: float, drafted: float, accepted: float, memory: float = MEMORY) -> None:
        """Take note of a round."""
        self.rounds = memory * self.rounds + 1
        self.passes = memory * self.passes + passes
        self.drafted = memory * self.drafted + drafted
        self.accepted = memory * self.accepted + accepted

    def worth(self, rounds: float) -> Record:
        """Return the same averages as if of so many rounds."""
        share = rounds / self.rounds
        return Record(rounds, self.passes * share, self.drafted * share, self.accepted * share)

    @property
    def chance(self) -> float:
        """That a draft token is accepted if it is tested; one a round is not."""
        return self.accepted / (self.accepted + self.rounds)


@dataclass(slots=True)
class Credit:
    """What a drafter may still lose of a request, so that its regret is bounded whatever happens.

    A draft is allowed only if its whole cost can be lost. So with every answer of ``T`` units of plain decoding that
    has its passes for itself a drafter whose tokens take a pass each costs at most ``TRIAL + SHARE * T`` more than it
    gains.
    """

    balance: float = TRIAL
    waited: float = (
        0.0  # in plain decoding since it was last tried, in this answer and those before that did not try it
    )

    def wait(self, cost: float) -> None:
        """Count a round by what it would have cost in plain decoding."""
        self.balance = min(self.balance + SHARE * cost, MOST_CREDIT)
        self.waited += cost

    def settle(self, brought: float, cost: float, *, is_probe: bool = False) -> None:
        """Count what became of a draft.

        Args:
            brought: What its tokens would have cost in plain decoding.
            cost: Its own.
            is_probe: Whether it promised nothing. If it came true all the same, what it brought may be spent on the
                next one at once: of a row of them only the last can be lost.
        """
        self.balance = min(self.balance + brought - cost, MOST_CREDIT)
        self.waited = brought / SHARE if is_probe else 0.0

    def may_probe(self, cost: float, reading: float) -> bool:
        """Whether a drafter that promises nothing may be tried all the same, seldom: for its cost and its reading."""
        return cost <= self.balance and cost + reading <= SHARE * self.waited


@dataclass(slots=True)
class AnswerLengths:
    """How long answers get, learned from the last of them."""

    lengths: deque[int] = field(default_factory=lambda: deque(maxlen=32))

    def observe(self, length: int) -> None:
        """Take note of an answer that has ended."""
        self.lengths.append(length)

    def remaining(self, so_far: int, limit: int | None) -> float:
        """Return how many tokens are to be expected of an answer that has so many and may get ``limit`` more, or any.

        The mean of what followed in earlier answers that got as far, and of one guess: as long again, and a little.
        """
        guess = float(max(so_far, GUESS))
        more = [length - so_far for length in self.lengths if length > so_far]
        expected = (sum(more) + guess) / (len(more) + 1)
        return expected if limit is None else min(expected, limit)


@dataclass(slots=True)
class Standing:
    """Where a member stands with one request.

    Attributes:
        num_read: How many tokens of the context its model has read, or need not.
        has_begun: Whether it was ever asked.
        edge: What it has promised beyond what was looked up, in all of ``num_edges`` rounds.
    """

    record: Record
    credit: Credit = field(default_factory=Credit)
    num_read: int = 0
    has_begun: bool = False
    edge: float = 0.0
    num_edges: int = 0


@dataclass(slots=True)
class Memory:
    """What is known of one request.

    Attributes:
        start: Length of the context when its drafts began.
        length: Of the context, in the last round.
        has_grown: Since it was last asked for.
        plain: What plain decoding of one token costs in the round.
        cost: Of the last round, the share of this request.
        used: Whose draft it had, or None; ``added`` is what that draft cost.
        is_probe: Whether that draft promised nothing.
        num_passes: How many passes its model made for it.
        num_own: How many of its tokens were theirs; the others are a continuation.
        next_id: The first of those, if there are any.
        problem: What was wrong with a member that could not bear to hear what became of its draft.
    """

    start: int
    length: int
    standings: list[Standing]
    rate: Rate = field(default_factory=Rate)
    dropped: set[int] = field(default_factory=set)
    has_grown: bool = True
    plain: float = 1.0
    cost: float = 1.0
    used: int | None = None
    is_probe: bool = False
    added: float = 0.0
    num_passes: int = 0
    num_own: int = 0
    next_id: int | None = None
    problem: str | None = None
