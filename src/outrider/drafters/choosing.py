"""Who is to draft for each request of a round, and how much, or nobody: what it promises against what it costs.

Whatever is looked up for nothing is looked at first. What costs passes of a model is asked only where its record
promises more than that, and its draft goes on while the gain expected of one more token exceeds what that costs, in
drafting and in the pass that checks it, which it shares with all requests of the round. No drafter may lose more of a
request than its credit (:mod:`.experience`), whatever becomes of its drafts. All of it is decided from the context,
from tokens that were chosen, and from past rounds. No clock is read: what passes cost is given.
"""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from outrider.backends.metered import Pass
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.experience import AnswerLengths
from outrider.drafters.gain import PassCosts, choose_length
from outrider.drafters.running_costs import RunningCosts
from outrider.drafters.turn import Turn, chances, cut, named
from outrider.types import Draft

# How many times what its reading costs a model must promise: that is what it did for others, and here may be half.
_RETURN = 2.0


@dataclass(frozen=True, slots=True)
class Member:
    """A drafter of a cascade.

    Attributes:
        drafter: The cascade is its only user.
        costs: Of its model's passes, in the unit of the target's. None for what is looked up: it is asked in every
            round, and must choose its tokens without drawing.
        max_tokens: The most tokens to ask it for.
        chance: How often its first choice is the target's, by a first impression; None if there is none.
        problem: What was wrong with it then. It is not asked, and drafts say why.
        passes: Where those of its model are noted, which correct their costs; costs are in seconds then.
        hear_costs: To be told what the target's passes cost, by one of one row, whenever that changes.
    """

    drafter: Drafter
    costs: PassCosts | None = None
    max_tokens: int = 64
    chance: float | None = None
    problem: str | None = None
    passes: MutableSequence[Pass] | None = None
    hear_costs: Callable[[PassCosts], None] | None = None


class Chooser:
    """Decides for the members of a cascade, which are told by their numbers.

    Args:
        members: See :class:`~outrider.drafters.cascade.CascadeDrafter`, as all others.
        costs: Of the target's passes.
        passes: Where those are noted.

    Attributes:
        costs: Of the target's passes as they are now, one of one row being 1.
        lookups: The members that are asked in every round.
        models: Those that are asked if they are chosen.
        lengths: Of answers that have ended.
    """

    def __init__(
        self, members: Sequence[Member], costs: PassCosts | None, passes: MutableSequence[Pass] | None
    ) -> None:
        self._members = members
        self._target = RunningCosts(costs or PassCosts(), passes)
        self._running = {
            number: RunningCosts(member.costs, member.passes, self._target)
            for number, member in enumerate(members)
            if member.costs is not None
        }
        self.lookups = [number for number, member in enumerate(members) if member.costs is None]
        self.models = list(self._running)
        self.lengths = AnswerLengths()
        self._reckon()

    def update(self) -> None:
        """Heed what passes took since the last round; those of this one have no say in it."""
        has_changed = [running.update() for running in (self._target, *self._running.values())]
        if any(has_changed):
            self._reckon()

    def weigh(self, turns: Sequence[Turn]) -> None:
        """Find what a unit of cost earns in this round, and how many rows its pass has before anybody drafts."""
        memories = [turn.memory for turn in turns]
        plain = self.costs.of([(1, memory.length) for memory in memories]) / len(memories)
        earned = sum(memory.rate.tokens for memory in memories) / sum(memory.rate.cost for memory in memories)
        for turn in turns:
            turn.memory.plain, turn.rate = plain, max(1 / plain, earned)
            turn.num_before = turns[0].request.num_other_rows + len(turns) - 1

    def added(self, turn: Turn, count: int) -> float:
        """Return what so many draft tokens add to the round's pass."""
        costs, before = self.costs, 1 + turn.num_before
        return costs.at(before + count) - costs.at(before) + costs.per_row_context * turn.memory.length * count

    def consider(self, turn: Turn, number: int, draft: Draft) -> None:
        """Note what a member has looked up, as long as it pays, if it beats what was looked up before."""
        standing = turn.memory.standings[number]
        length, gain = choose_length(
            chances(draft, standing.record),
            self.costs,
            turn.rate,
            num_before=turn.num_before,
            context=turn.memory.length,
            budget=standing.credit.balance,
        )
        if gain > turn.gain:
            turn.offer = named(cut(draft, length), self._members[number].drafter.name)
            turn.gain, turn.offered_by = gain, number

    def choose(self, turn: Turn, turns: Sequence[Turn]) -> None:
        """Choose who drafts: whoever looked something up, or a model by its record, seldom against it."""
        turn.chosen, best = turn.offered_by, turn.gain
        for number in self.models:
            costs = self._model_costs[number]
            turn.problem = turn.problem or self._members[number].problem
            if number in turn.memory.dropped or self._members[number].problem is not None:
                continue
            sharing = sum(number not in other.memory.dropped for other in turns)
            token_cost = costs.of([(1, turn.memory.length)] * sharing) / sharing
            limit, accepted, gain = self._expect(turn, number, token_cost)
            if limit == 0:
                continue
            reading = self._reading(turn, number, costs)
            if gain > best and self._repays(turn, number, gain - turn.gain, accepted, reading):
                turn.chosen, turn.limit, turn.token_cost, best = number, limit, token_cost, gain
                turn.is_probe = False
            elif turn.chosen is None:
                probe = token_cost + self.added(turn, 1)
                if turn.memory.standings[number].credit.may_probe(probe, reading):
                    turn.chosen, turn.limit, turn.token_cost, turn.is_probe = number, 1, token_cost, True

    def request(self, number: int, turn: Turn) -> DraftRequest:
        """Return what the model that was chosen is asked for; from then on it has read the context."""
        standing = turn.memory.standings[number]
        standing.num_read, standing.has_begun = turn.memory.length, True
        chance = max(standing.record.chance, 1e-9)
        added = [self.added(turn, count) for count in range(turn.limit + 1)]
        least = [turn.rate * (turn.token_cost + more - less) / chance for less, more in pairwise(added)]
        return replace(turn.request, max_tokens=turn.limit, least_chances=(0.0, *least[1:]))

    def _expect(self, turn: Turn, number: int, token_cost: float) -> tuple[int, float, float]:
        """Return how many tokens a model may draft, all of which may be lost, and what it brings and gains."""
        standing = turn.memory.standings[number]
        limit = min(self._members[number].max_tokens, turn.request.max_tokens)
        while limit and token_cost * limit + self.added(turn, limit) > standing.credit.balance:
            limit -= 1
        record = standing.record
        drafted, passes = record.drafted / record.rounds, record.passes / record.rounds
        part = min(1.0, limit / max(passes, 1e-9))
        cost = self.added(turn, round(part * drafted)) + token_cost * max(1.0, part * passes)
        accepted = part * record.accepted / record.rounds
        return limit, accepted, accepted - turn.rate * cost

    def _reading(self, turn: Turn, number: int, costs: PassCosts) -> float:
        """Return what it costs a model to read what it has not read, beyond the pass that it drafts with anyway."""
        num_read = turn.memory.standings[number].num_read
        return max(0.0, costs.reading(turn.memory.length - num_read, context=num_read) - costs.at(1, num_read))

    def _repays(self, turn: Turn, number: int, edge: float, accepted: float, reading: float) -> bool:
        """Whether it is time for a model to read what it has to.

        It is once it has been missed for what reading costs, and promises to bring twice as much in the rest of the
        answer. So waiting and reading together cost at most twice what was best in hindsight: renting or buying.

        Args:
            turn: A request in a round.
            number: The model's.
            edge: What it promises in this round beyond what is looked up.
            accepted: Tokens that it is expected to bring in a round.
            reading: What it costs to read.
        """
        memory = turn.memory
        standing = memory.standings[number]
        if memory.has_grown:
            standing.edge += max(0.0, edge)
            standing.num_edges += 1
        limit = turn.request.num_remaining
        num_tokens = self.lengths.remaining(memory.length - memory.start, limit)
        num_rounds = num_tokens / (1 + accepted)
        price = turn.rate * reading
        return standing.edge >= price and standing.edge / max(1, standing.num_edges) * num_rounds >= _RETURN * price

    def _reckon(self) -> None:
        """Reckon in passes of one row of the target, as they are now."""
        costs = self._target.now
        unit = costs.at(1)
        self.costs = costs.in_units_of(unit)
        self._model_costs = {number: running.now.in_units_of(unit) for number, running in self._running.items()}
        for member in self._members:
            if member.hear_costs is not None:
                member.hear_costs(self.costs)
