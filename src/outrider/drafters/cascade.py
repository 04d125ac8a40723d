"""The controller: who drafts for a request in a round, and how much, or nobody.

Whatever is looked up for nothing is looked at first. What costs passes of a model is asked only where its record
promises more than that, and its draft goes on while the gain expected of one more token exceeds what that costs, in
drafting and in the pass that checks it, which it shares with all requests of the round. What it proposes may be
continued by what is looked up. No drafter may lose more of a request than its credit (:mod:`.experience`), whatever
becomes of its drafts. Whom to ask, and for how much, is decided before anything is drawn, from the context, from
tokens that were chosen, and from past rounds: no drawn token decides whether it is verified, or by which rule. For
greedy and coupled requests the output depends on none of it. No clock is read: what passes cost is given.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from outrider.backends.metered import Pass
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.check import checked
from outrider.drafters.experience import AnswerLengths, Credit, Memory, Record, Standing
from outrider.drafters.gain import PassCosts, choose_length
from outrider.drafters.running_costs import RunningCosts
from outrider.drafters.turn import (
    Turn,
    chances,
    charge,
    continuation,
    cut,
    finished,
    joined,
    may_grow,
    named,
    num_passes,
    share,
)
from outrider.errors import UsageError
from outrider.types import Draft, Outcome, Proposal, Verdict, VerificationResult

# What a draft model is assumed to bring in a round where nothing is known of it; how many rounds of other requests that
# is worth, and how many of a request's own what was seen in others. Chosen by benchmarks.replay, as other constants.
_PRIOR_DRAFTED, _PRIOR_ACCEPTED = 3.5, 2.0
_LONG_ROUNDS, _PRIOR_ROUNDS = 10.0, 3.0
_LONG_MEMORY = 0.99  # what a round counts for in other requests, one round later


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


class CascadeDrafter:
    """Drafts with whichever of its members promises most in a round, or not at all.

    A member that fails is not asked again for that request; the others go on, and the draft says what was wrong.

    Args:
        members: At least one, in order of preference where all else is equal.
        vocab_size: How many ids the target knows; a member that proposes others has failed.
        costs: Of the target's passes; those of one row of it are the unit of all that is reckoned here.
        passes: Where those are noted, which correct their costs; costs are in seconds then.

    Raises:
        UsageError: There is no member, or a limit makes no sense.
    """

    def __init__(
        self,
        members: Sequence[Member],
        *,
        vocab_size: int,
        costs: PassCosts | None = None,
        passes: MutableSequence[Pass] | None = None,
    ) -> None:
        if not members:
            raise UsageError("a cascade of no drafters; name at least one")
        for member in members:
            if member.max_tokens < 1:
                raise UsageError(f"{member.drafter.name} may draft {member.max_tokens} tokens; the least limit is 1")
        self.members = tuple(members)
        self.name = " + ".join(member.drafter.name for member in members)
        self._vocab_size = vocab_size
        self._target = RunningCosts(costs or PassCosts(), passes)
        self._running = {
            number: RunningCosts(member.costs, member.passes, self._target)
            for number, member in enumerate(members)
            if member.costs is not None
        }
        self._reckon()
        self._lookups = [number for number, member in enumerate(members) if member.costs is None]
        self._models = list(self._running)
        self._memories: dict[Hashable, Memory] = {}
        self._experience = [_expected(member.chance) for member in members]
        self._waited = [0.0] * len(members)  # by requests that have ended; the next one takes it over
        self._lengths = AnswerLengths()

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. Each member is asked for all its requests at once."""
        # What passes took since the last round; those of this one have no say in it.
        has_changed = [running.update() for running in (self._target, *self._running.values())]
        if any(has_changed):
            self._reckon()
        turns = [Turn(request, self._memory(request)) for request in requests]
        self._weigh(turns)
        for number in self._lookups:
            for turn, draft in self._ask(number, turns, lambda turn: turn.request):
                self._take_offer(turn, number, draft)
        for turn in turns:
            self._choose(turn, turns)
        if len(turns) > 1:
            share(turns, self._costs)
        for number in self._models:
            for turn, draft in self._ask(number, [turn for turn in turns if turn.chosen == number], self._own_request):
                turn.draft = draft
        for turn in turns:
            self._settle(turn)
        for number in self._lookups:
            for turn, draft in self._ask(number, [turn for turn in turns if may_grow(turn)], continuation):
                self._continue(turn, number, draft)
        if len(turns) > 1:
            charge(turns, self._costs)
        return [finished(turn) for turn in turns]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Learn what became of a draft, and tell the member whose it was, as if nothing had followed its own tokens."""
        memory = self._memories.get(request_id)
        if memory is None or memory.used is None:
            return
        standing = memory.standings[memory.used]
        standing.credit.settle(result.num_accepted * memory.plain, memory.added, is_probe=memory.is_probe)
        if memory.next_id is not None and result.num_accepted > memory.num_own:
            result = VerificationResult(memory.num_own, memory.next_id, Outcome.BONUS)
        num_accepted = sum(node < memory.num_own for node in result.path)
        standing.num_read += num_accepted
        standing.record.observe(memory.num_passes, memory.num_own, num_accepted)
        self._experience[memory.used].observe(memory.num_passes, memory.num_own, num_accepted, _LONG_MEMORY)
        self.members[memory.used].drafter.observe(request_id, result)

    def release(self, request_id: Hashable) -> None:
        """Forget a request, but for how long its answer was."""
        memory = self._memories.pop(request_id, None)
        if memory is not None:
            self._lengths.observe(memory.length - memory.start)
            for number, standing in enumerate(memory.standings):
                self._waited[number] += standing.credit.waited
        for member in self.members:
            member.drafter.release(request_id)

    def _reckon(self) -> None:
        """Reckon in passes of one row of the target, as they are now."""
        costs = self._target.now
        unit = costs.at(1)
        self._costs = costs.in_units_of(unit)
        self._model_costs = {number: running.now.in_units_of(unit) for number, running in self._running.items()}
        for member in self.members:
            if member.hear_costs is not None:
                member.hear_costs(self._costs)

    def _memory(self, request: DraftRequest) -> Memory:
        """Return what is known of a request, the gain of its last round included."""
        length = len(request.context_ids)
        memory = self._memories.get(request.request_id)
        if memory is None:
            standings = [
                Standing(record.worth(_PRIOR_ROUNDS), Credit(waited=waited))
                for record, waited in zip(self._experience, self._waited, strict=True)
            ]
            self._waited = [0.0] * len(standings)
            memory = Memory(length, length, standings)
            if request.drafter is not None:
                names = [member.drafter.name for member in self.members]
                memory.dropped |= {number for number, name in enumerate(names) if name != request.drafter}
            self._memories[request.request_id] = memory
            return memory
        memory.has_grown = length > memory.length
        if memory.has_grown:
            memory.rate.observe(length - memory.length, memory.cost)
            for standing in memory.standings:
                standing.credit.wait((length - memory.length) * memory.plain)
            memory.length = length
        return memory

    def _weigh(self, turns: Sequence[Turn]) -> None:
        """Find what a unit of cost earns in this round, and how many rows its pass has before anybody drafts."""
        memories = [turn.memory for turn in turns]
        plain = self._costs.of([(1, memory.length) for memory in memories]) / len(memories)
        earned = sum(memory.rate.tokens for memory in memories) / sum(memory.rate.cost for memory in memories)
        for turn in turns:
            turn.memory.plain, turn.rate = plain, max(1 / plain, earned)
            turn.num_before = turns[0].request.num_other_rows + len(turns) - 1

    def _added(self, turn: Turn, count: int) -> float:
        """Return what so many draft tokens add to the round's pass."""
        costs, before = self._costs, 1 + turn.num_before
        return costs.at(before + count) - costs.at(before) + costs.per_row_context * turn.memory.length * count

    def _ask(
        self, number: int, turns: Iterable[Turn], request_of: Callable[[Turn], DraftRequest]
    ) -> list[tuple[Turn, Proposal]]:
        """Ask a member for several drafts at once, and drop it from the requests that make it fail."""
        asked = [turn for turn in turns if number not in turn.memory.dropped]
        if not asked:
            return []
        drafter = self.members[number].drafter
        requests = [request_of(turn) for turn in asked]
        try:
            drafts = [
                checked(draft, request, self._vocab_size, reads_laws=False)
                for draft, request in zip(drafter.propose(requests), requests, strict=True)
            ]
        except Exception as error:  # noqa: BLE001 - it may be anybody's code
            if len(asked) > 1:
                return [pair for turn in asked for pair in self._ask(number, [turn], request_of)]
            asked[0].memory.dropped.add(number)
            asked[0].problem = f"{drafter.name} failed and was dropped: {type(error).__name__}: {error}"
            return []
        return list(zip(asked, drafts, strict=True))

    def _take_offer(self, turn: Turn, number: int, draft: Proposal) -> None:
        """Note what was looked up, as long as it pays, if it beats what was looked up before."""
        if not isinstance(draft, Draft) or draft.probs is not None:
            turn.memory.dropped.add(number)
            turn.problem = f"{self.members[number].drafter.name} was dropped: what costs nothing may not draw or branch"
            return
        standing = turn.memory.standings[number]
        length, gain = choose_length(
            chances(draft, standing.record),
            self._costs,
            turn.rate,
            num_before=turn.num_before,
            context=turn.memory.length,
            budget=standing.credit.balance,
        )
        if gain > turn.gain:
            turn.offer, turn.gain, turn.offered_by = (
                named(cut(draft, length), self.members[number].drafter.name),
                gain,
                number,
            )

    def _choose(self, turn: Turn, turns: Sequence[Turn]) -> None:
        """Choose who drafts: whoever looked something up, or a model by its record, seldom against it."""
        turn.chosen, best = turn.offered_by, turn.gain
        for number in self._models:
            costs = self._model_costs[number]
            turn.problem = turn.problem or self.members[number].problem
            if number in turn.memory.dropped or self.members[number].problem is not None:
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
                probe = token_cost + self._added(turn, 1)
                if turn.memory.standings[number].credit.may_probe(probe, reading):
                    turn.chosen, turn.limit, turn.token_cost, turn.is_probe = number, 1, token_cost, True

    def _expect(self, turn: Turn, number: int, token_cost: float) -> tuple[int, float, float]:
        """Return how many tokens a model may draft, all of which may be lost, and what it brings and gains."""
        standing = turn.memory.standings[number]
        limit = min(self.members[number].max_tokens, turn.request.max_tokens)
        while limit and token_cost * limit + self._added(turn, limit) > standing.credit.balance:
            limit -= 1
        record = standing.record
        drafted, passes = record.drafted / record.rounds, record.passes / record.rounds
        part = min(1.0, limit / max(passes, 1e-9))
        cost = self._added(turn, round(part * drafted)) + token_cost * max(1.0, part * passes)
        accepted = part * record.accepted / record.rounds
        return limit, accepted, accepted - turn.rate * cost

    def _reading(self, turn: Turn, number: int, costs: PassCosts) -> float:
        """Return what it costs a model to read what it has not read, beyond the pass that it drafts with anyway."""
        num_read = turn.memory.standings[number].num_read
        return max(0.0, costs.reading(turn.memory.length - num_read, context=num_read) - costs.at(1, num_read))

    def _repays(self, turn: Turn, number: int, edge: float, accepted: float, reading: float) -> bool:
        """Whether it is time for a model to read what it has to.

        It is once it has been missed for what reading costs, and promises to bring as much again in the rest of the
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
        num_tokens = self._lengths.remaining(memory.length - memory.start, limit)
        num_rounds = num_tokens / (1 + accepted)
        price = turn.rate * reading
        return standing.edge >= price and standing.edge / max(1, standing.num_edges) * num_rounds >= price

    def _own_request(self, turn: Turn) -> DraftRequest:
        """Return what the chosen model is asked for; from then on it has read the context."""
        number = self._models[0] if turn.chosen is None else turn.chosen
        standing = turn.memory.standings[number]
        standing.num_read = turn.memory.length
        chance = max(standing.record.chance, 1e-9)
        added = [self._added(turn, count) for count in range(turn.limit + 1)]
        least = [turn.rate * (turn.token_cost + more - less) / chance for less, more in pairwise(added)]
        return replace(turn.request, max_tokens=turn.limit, least_chances=(0.0, *least[1:]))

    def _settle(self, turn: Turn) -> None:
        """Fall back on what was looked up where a model has nothing to propose, and note what the round costs."""
        memory, drafting = turn.memory, 0.0
        if turn.chosen in self._models:
            drafting = turn.token_cost * max(1, num_passes(turn.draft))
            if len(turn.draft):
                turn.draft = named(turn.draft, self.members[turn.chosen].drafter.name)
            else:
                if not (isinstance(turn.draft, Draft) and turn.draft.is_reading):
                    memory.standings[turn.chosen].record.observe(1, 0, 0)
                    memory.standings[turn.chosen].credit.settle(0.0, drafting)
                turn.problem = turn.problem or turn.draft.problem
                turn.chosen = turn.offered_by
        if turn.chosen == turn.offered_by:
            turn.draft = turn.offer
        count = len(turn.draft)
        memory.num_passes = num_passes(turn.draft)
        memory.used, memory.num_own, memory.next_id = turn.chosen, count, None
        memory.is_probe = turn.is_probe and turn.chosen in self._models
        memory.added = self._added(turn, count) + drafting
        memory.cost = memory.plain + memory.added

    def _continue(self, turn: Turn, number: int, more: Proposal) -> None:
        """Let what was looked up follow a model's draft, as far as it pays."""
        draft, memory = turn.draft, turn.memory
        if memory.used is None or not isinstance(draft, Draft) or not isinstance(more, Draft) or more.probs is not None:
            return
        standing = memory.standings[memory.used]
        first, *others = [*chances(more, standing.record), 0.0]
        survival = prod(chances(draft, standing.record))
        length, gain = choose_length(
            [survival * first, *others],
            self._costs,
            turn.rate,
            num_before=turn.num_before + len(draft),
            context=memory.length,
            budget=standing.credit.balance - memory.added,
        )
        if gain <= 0 or (length := min(length, len(more))) == 0:
            return
        memory.next_id = more.token_ids[0] if memory.next_id is None else memory.next_id
        before = self._added(turn, len(draft))
        turn.draft = joined(draft, named(cut(more, length), self.members[number].drafter.name))
        memory.added += self._added(turn, len(turn.draft)) - before
        memory.cost = memory.plain + memory.added


def _expected(chance: float | None) -> Record:
    """Return the record of a drafter that has none, by how often its first choice is said to be right."""
    accepted = _PRIOR_ACCEPTED if chance is None else min(_PRIOR_ACCEPTED, chance / max(1 - chance, 1e-9))
    drafted = accepted + _PRIOR_DRAFTED - _PRIOR_ACCEPTED
    return Record(1.0, drafted, drafted, accepted).worth(_LONG_ROUNDS)
