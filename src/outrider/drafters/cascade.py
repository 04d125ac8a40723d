"""The controller: asks those who are to draft in a round, joins what they propose, and learns what becomes of it.

Who drafts for a request, and how much, or nobody, is :mod:`.choosing`'s to say, before anything is drawn: no drawn
token decides whether it is verified, or by which rule. What a model proposes may be continued by what is looked up. For
greedy and coupled requests the output depends on none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, MutableSequence, Sequence
from contextlib import ExitStack
from functools import partial
from math import prod

from outrider.backends.metered import Pass
from outrider.drafters.base import Drafter, DraftRequest, KeepsContexts
from outrider.drafters.check import checked
from outrider.drafters.choosing import Chooser, Member
from outrider.drafters.experience import Credit, Memory, Record, Standing
from outrider.drafters.gain import PassCosts, choose_length
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
        self._chooser = Chooser(self.members, costs, passes)
        self._memories: dict[Hashable, Memory] = {}
        self._experience = [_expected(member.chance) for member in members]
        self._waited = [0.0] * len(members)  # by requests that have ended; the next one takes it over

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. Each member is asked for all its requests at once."""
        chooser = self._chooser
        chooser.update()
        memories = [self._memory(request) for request in requests]
        turns = [
            Turn(request, memory, problem=memory.problem) for request, memory in zip(requests, memories, strict=True)
        ]
        chooser.weigh(turns)
        for number in chooser.lookups:
            for turn, draft in self._ask(number, turns, lambda turn: turn.request):
                self._offer(turn, number, draft)
        for turn in turns:
            chooser.choose(turn, turns)
        if len(turns) > 1:
            share(turns, chooser.costs)
        for number in chooser.models:
            chosen = [turn for turn in turns if turn.chosen == number and self._holds(number, turn)]
            for turn, draft in self._ask(number, chosen, partial(chooser.request, number)):
                turn.draft = draft
        for turn in turns:
            self._settle(turn)
        for number in chooser.lookups:
            for turn, draft in self._ask(number, [turn for turn in turns if may_grow(turn)], continuation):
                self._continue(turn, number, draft)
        if len(turns) > 1:
            charge(turns, chooser.costs)
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
        drafter = self.members[memory.used].drafter
        try:
            drafter.observe(request_id, result)
        except Exception as error:  # noqa: BLE001 - it may be anybody's code
            memory.dropped.add(memory.used)
            memory.problem = _dropped(drafter, error)

    def release(self, request_id: Hashable) -> None:
        """Forget a request, but for how long its answer was."""
        memory = self._memories.pop(request_id, None)
        if memory is not None:
            self._chooser.lengths.observe(memory.length - memory.start)
            for number, standing in enumerate(memory.standings):
                self._waited[number] += standing.credit.waited
        with ExitStack() as every:  # whatever one of them raises
            for member in self.members:
                every.callback(member.drafter.release, request_id)

    def keep_contexts(self, max_tokens: int, grain: int = 1) -> None:
        """See :meth:`outrider.drafters.base.KeepsContexts.keep_contexts`. Each member may hold as much."""
        for member in self.members:
            if isinstance(member.drafter, KeepsContexts):
                member.drafter.keep_contexts(max_tokens, grain)

    def num_held(self, context_ids: Sequence[int]) -> int:
        """See :meth:`outrider.drafters.base.KeepsContexts.num_held`: what all members that read need not read."""
        drafters = [self.members[number].drafter for number in self._chooser.models]
        held = [one.num_held(context_ids) if isinstance(one, KeepsContexts) else 0 for one in drafters]
        return min(held, default=len(context_ids))

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
            for number in self._chooser.models:
                self._note_held(number, memory, request.context_ids)
            return memory
        memory.has_grown = length > memory.length
        if memory.has_grown:
            memory.rate.observe(length - memory.length, memory.cost)
            for standing in memory.standings:
                standing.credit.wait((length - memory.length) * memory.plain)
            memory.length = length
        return memory

    def _note_held(self, number: int, memory: Memory, context_ids: Sequence[int]) -> None:
        """Note what of a context a model need not read that has not begun with it."""
        drafter = self.members[number].drafter
        try:
            if isinstance(drafter, KeepsContexts):
                memory.standings[number].num_read = drafter.num_held(context_ids)
        except Exception as error:  # noqa: BLE001 - it may be anybody's code
            memory.dropped.add(number)
            memory.problem = _dropped(drafter, error)

    def _holds(self, number: int, turn: Turn) -> bool:
        """Whether what a model was said to hold of a context is still there; if not, the next round weighs it anew."""
        standing = turn.memory.standings[number]
        told = standing.num_read
        if told and not standing.has_begun:
            self._note_held(number, turn.memory, turn.request.context_ids)
            if standing.num_read < told:
                turn.chosen = turn.offered_by
                return False
        return True

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
            asked[0].problem = _dropped(drafter, error)
            return []
        return list(zip(asked, drafts, strict=True))

    def _offer(self, turn: Turn, number: int, draft: Proposal) -> None:
        """Have what was looked up considered, if it is what costs nothing may propose."""
        if isinstance(draft, Draft) and draft.probs is None:
            self._chooser.consider(turn, number, draft)
            return
        turn.memory.dropped.add(number)
        turn.problem = f"{self.members[number].drafter.name} was dropped: what costs nothing may not draw or branch"

    def _settle(self, turn: Turn) -> None:
        """Fall back on what was looked up where a model has nothing to propose, and note what the round costs."""
        memory, drafting = turn.memory, 0.0
        if turn.chosen in self._chooser.models:
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
        memory.is_probe = turn.is_probe and turn.chosen in self._chooser.models
        memory.added = self._chooser.added(turn, count) + drafting
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
            self._chooser.costs,
            turn.rate,
            num_before=turn.num_before + len(draft),
            context=memory.length,
            budget=standing.credit.balance - memory.added,
        )
        if gain <= 0 or (length := min(length, len(more))) == 0:
            return
        memory.next_id = more.token_ids[0] if memory.next_id is None else memory.next_id
        before = self._chooser.added(turn, len(draft))
        turn.draft = joined(draft, named(cut(more, length), self.members[number].drafter.name))
        memory.added += self._chooser.added(turn, len(turn.draft)) - before
        memory.cost = memory.plain + memory.added


def _dropped(drafter: Drafter, error: Exception) -> str:
    return f"{drafter.name} failed and was dropped: {type(error).__name__}: {error}"


def _expected(chance: float | None) -> Record:
    """Return the record of a drafter that has none, by how often its first choice is said to be right."""
    accepted = _PRIOR_ACCEPTED if chance is None else min(_PRIOR_ACCEPTED, chance / max(1 - chance, 1e-9))
    drafted = accepted + _PRIOR_DRAFTED - _PRIOR_ACCEPTED
    return Record(1.0, drafted, drafted, accepted).worth(_LONG_ROUNDS)
