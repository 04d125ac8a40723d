"""Several drafters on one request: each round is drafted by the one that promises most for its cost.

Whatever is looked up for nothing is looked at first. What costs passes of a model is asked only where its record in
this request promises more than that. What it proposes may be continued by what is looked up. Whom to ask is decided
before anything is drawn, from the context, from tokens that were chosen, and from past rounds: no drawn token decides
whether it is verified, or by which rule. For greedy and coupled requests the output depends on none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TypeVar

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.check import checked
from outrider.drafters.gain import PassCosts, Rate, choose_length
from outrider.errors import UsageError
from outrider.types import Draft, Outcome, Proposal, Verdict, VerificationResult

_P = TypeVar("_P", bound=Proposal)
_NOTHING = Draft(())
# What a draft that costs passes is assumed to bring before there is any evidence, and how many rounds of evidence that
# assumption is worth. Measured on a 0.5B that drafts up to six tokens for a 1.5B.
_PRIOR_DRAFTED, _PRIOR_ACCEPTED, _PRIOR_ROUNDS = 4.5, 3.0, 2.0
_MEMORY = 0.9  # what a round counts for, one round later
# A model that has not read the context has to read it before it drafts. It may once this share of what reading costs
# has been missed without it: at 1, both together cost at most twice what was best in hindsight (renting or buying).
_MISSED_SHARE = 1.0
_FEW_TOKENS = 32  # to read so many costs little more than to read one


@dataclass(frozen=True, slots=True)
class Member:
    """A drafter of a cascade.

    Attributes:
        drafter: The cascade is its only user.
        token_cost: Of drafting one token, in passes of one row of the target, as measured. 0 for what is looked up:
            it is asked in every round, and must choose its tokens without drawing.
        max_tokens: The most tokens to ask it for.
    """

    drafter: Drafter
    token_cost: float = 0.0
    max_tokens: int = 64


@dataclass(slots=True)
class _Record:
    """What a member has done for a request, a round long ago counting less than the last; and what it has read."""

    rounds: float = _PRIOR_ROUNDS
    drafted: float = _PRIOR_DRAFTED * _PRIOR_ROUNDS
    accepted: float = _PRIOR_ACCEPTED * _PRIOR_ROUNDS
    num_read: int = 0
    missed: float = 0.0

    def observe(self, drafted: int, accepted: int) -> None:
        """Take note of a round."""
        self.rounds = _MEMORY * self.rounds + 1
        self.drafted = _MEMORY * self.drafted + drafted
        self.accepted = _MEMORY * self.accepted + accepted

    @property
    def chance(self) -> float:
        """That a draft token is accepted if it is tested; one a round is not."""
        return self.accepted / (self.accepted + self.rounds)


@dataclass(slots=True)
class _Memory:
    """What is known of one request.

    Attributes:
        length: Of the context, in the last round.
        cost: Of the last round.
        used: Whose draft it had, or None.
        num_own: How many of its tokens were theirs; the others are a continuation.
        next_id: The first of those, if there are any.
    """

    length: int
    records: list[_Record]
    rate: Rate = field(default_factory=Rate)
    dropped: set[int] = field(default_factory=set)
    cost: float = 1.0
    used: int | None = None
    num_own: int = 0
    next_id: int | None = None


@dataclass(slots=True)
class _Turn:
    """One request in one round.

    Attributes:
        offer: The best draft that was looked up, as long as it pays, and its gain; ``offered_by`` is its member.
        chosen: Who drafts; None for nobody.
    """

    request: DraftRequest
    memory: _Memory
    offer: Draft = _NOTHING
    gain: float = 0.0
    offered_by: int | None = None
    chosen: int | None = None
    draft: Proposal = _NOTHING
    problem: str | None = None


class CascadeDrafter:
    """Drafts with whichever of its members promises most in a round.

    A member that fails is not asked again for that request; the others go on, and the draft says what was wrong.

    Args:
        members: At least one, in order of preference where all else is equal.
        vocab_size: How many ids the target knows; a member that proposes others has failed.
        costs: Of the target's passes.

    Raises:
        UsageError: There is no member, or a cost or limit makes no sense.
    """

    def __init__(self, members: Sequence[Member], *, vocab_size: int, costs: PassCosts | None = None) -> None:
        if not members:
            raise UsageError("a cascade of no drafters; name at least one")
        for member in members:
            if not (0 <= member.token_cost < float("inf") and member.max_tokens >= 1):
                raise UsageError(
                    f"{member.drafter.name} costs {member.token_cost} passes a token, for at most {member.max_tokens}; "
                    "the cost must be a number from 0 up, and the limit at least 1"
                )
        self.members = tuple(members)
        self.name = " + ".join(member.drafter.name for member in members)
        self._vocab_size = vocab_size
        self._costs = costs or PassCosts()
        self._lookups = [number for number, member in enumerate(members) if member.token_cost == 0]
        self._models = [number for number, member in enumerate(members) if member.token_cost > 0]
        self._memories: dict[Hashable, _Memory] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`. Each member is asked for all its requests at once."""
        turns = [_Turn(request, self._memory(request)) for request in requests]
        for number in self._lookups:
            for turn, draft in self._ask(number, turns, lambda turn: turn.request):
                self._take_offer(turn, number, draft)
        for turn in turns:
            self._choose(turn)
        for number in self._models:
            for turn, draft in self._ask(number, [turn for turn in turns if turn.chosen == number], self._own_request):
                turn.draft = draft
        for turn in turns:
            self._settle(turn)
        for number in self._lookups:
            for turn, draft in self._ask(number, [turn for turn in turns if _may_grow(turn)], _continuation):
                self._continue(turn, number, draft)
        return [_finished(turn) for turn in turns]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Learn what became of a draft, and tell the member whose it was, as if nothing had followed its own tokens."""
        memory = self._memories.get(request_id)
        if memory is None or memory.used is None:
            return
        if memory.next_id is not None and result.num_accepted > memory.num_own:
            result = VerificationResult(memory.num_own, memory.next_id, Outcome.BONUS)
        num_accepted = sum(node < memory.num_own for node in result.path)
        memory.records[memory.used].observe(memory.num_own, num_accepted)
        self.members[memory.used].drafter.observe(request_id, result)

    def release(self, request_id: Hashable) -> None:
        """Forget a request."""
        self._memories.pop(request_id, None)
        for member in self.members:
            member.drafter.release(request_id)

    def _memory(self, request: DraftRequest) -> _Memory:
        """Return what is known of a request, the gain of its last round included."""
        length = len(request.context_ids)
        memory = self._memories.get(request.request_id)
        if memory is None:
            memory = _Memory(length, [_Record() for _ in self.members])
            if request.drafter is not None:
                names = [member.drafter.name for member in self.members]
                memory.dropped |= {number for number, name in enumerate(names) if name != request.drafter}
            self._memories[request.request_id] = memory
        elif length > memory.length:
            memory.rate.observe(length - memory.length, memory.cost)
            memory.length = length
        return memory

    def _ask(
        self, number: int, turns: Iterable[_Turn], request_of: Callable[[_Turn], DraftRequest]
    ) -> list[tuple[_Turn, Proposal]]:
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

    def _take_offer(self, turn: _Turn, number: int, draft: Proposal) -> None:
        """Note what was looked up, as long as it pays, if it beats what was looked up before."""
        if not isinstance(draft, Draft) or draft.probs is not None:
            turn.memory.dropped.add(number)
            turn.problem = f"{self.members[number].drafter.name} was dropped: what costs nothing may not draw or branch"
            return
        chances = _chances(draft, turn.memory.records[number])
        length, gain = choose_length(chances, self._costs, turn.memory.rate.value)
        if gain > turn.gain:
            turn.offer, turn.gain, turn.offered_by = _named(_cut(draft, length), self.members[number]), gain, number

    def _choose(self, turn: _Turn) -> None:
        """Choose who drafts: whoever looked something up, or a model by its record."""
        memory, rate = turn.memory, turn.memory.rate.value
        turn.chosen, best_gain = turn.offered_by, turn.gain
        for number in self._models:
            member, record = self.members[number], memory.records[number]
            if number in memory.dropped:
                continue
            drafted = record.drafted / record.rounds
            share = min(1.0, turn.request.max_tokens / max(drafted, 1e-9))
            cost = self._costs.at(1 + round(share * drafted)) - 1 + member.token_cost * max(1.0, share * drafted)
            gain = share * record.accepted / record.rounds - rate * cost
            num_unread = memory.length - record.num_read
            reading = member.token_cost * (self._costs.at(num_unread) - 1)
            if num_unread > _FEW_TOKENS and record.missed < _MISSED_SHARE * rate * reading:
                record.missed += max(0.0, gain - turn.gain)
            elif gain > best_gain:
                turn.chosen, best_gain = number, gain

    def _own_request(self, turn: _Turn) -> DraftRequest:
        """Return what the chosen model is asked for; from then on it has read the context."""
        number = self._models[0] if turn.chosen is None else turn.chosen
        record = turn.memory.records[number]
        record.num_read, record.missed = turn.memory.length, 0.0
        return replace(turn.request, max_tokens=min(self.members[number].max_tokens, turn.request.max_tokens))

    def _settle(self, turn: _Turn) -> None:
        """Fall back on what was looked up where a model has nothing to propose, and note what the round costs."""
        memory, drafting = turn.memory, 0.0
        if turn.chosen in self._models:
            drafting = self.members[turn.chosen].token_cost * turn.draft.depth
            if len(turn.draft):
                turn.draft = _named(turn.draft, self.members[turn.chosen])
            else:
                if not (isinstance(turn.draft, Draft) and turn.draft.is_reading):
                    memory.records[turn.chosen].observe(0, 0)
                turn.problem = turn.problem or turn.draft.problem
                turn.chosen = turn.offered_by
        if turn.chosen == turn.offered_by:
            turn.draft = turn.offer
        memory.used, memory.num_own, memory.next_id = turn.chosen, len(turn.draft), None
        memory.cost = self._costs.at(1 + len(turn.draft)) + drafting

    def _continue(self, turn: _Turn, number: int, more: Proposal) -> None:
        """Let what was looked up follow a model's draft, as far as it pays."""
        draft, memory = turn.draft, turn.memory
        if memory.used is None or not isinstance(draft, Draft) or not isinstance(more, Draft) or more.probs is not None:
            return
        record = memory.records[memory.used]
        first, *others = [*_chances(more, record), 0.0]
        survival = prod(_chances(draft, record))
        num_before = len(draft)
        length, gain = choose_length([survival * first, *others], self._costs, memory.rate.value, num_before=num_before)
        if gain <= 0 or (length := min(length, len(more))) == 0:
            return
        memory.next_id = more.token_ids[0] if memory.next_id is None else memory.next_id
        turn.draft = _joined(draft, _named(_cut(more, length), self.members[number]))
        memory.cost += self._costs.at(1 + num_before + length) - self._costs.at(1 + num_before)


def _may_grow(turn: _Turn) -> bool:
    """Whether a round is drafted by a model whose draft, a chain, may be followed by something."""
    is_model = turn.chosen is not None and turn.chosen != turn.offered_by
    has_room = len(turn.draft) < turn.request.max_tokens
    return is_model and has_room and isinstance(turn.draft, Draft) and turn.draft.problem is None


def _continuation(turn: _Turn) -> DraftRequest:
    room = turn.request.max_tokens - len(turn.draft)
    return replace(turn.request, max_tokens=room, max_tree_tokens=0, draft_ids=turn.draft.token_ids)


def _finished(turn: _Turn) -> Proposal:
    if turn.problem is None:
        return turn.draft
    return replace(turn.draft, problem=turn.problem)


def _chances(draft: Draft, record: _Record) -> Sequence[float]:
    return draft.confidences or [record.chance] * len(draft)


def _cut(draft: Draft, length: int) -> Draft:
    """Return the beginning of a draft whose tokens were chosen."""
    return replace(
        draft,
        token_ids=draft.token_ids[:length],
        confidences=draft.confidences[:length],
        sources=draft.sources[:length],
    )


def _named(draft: _P, member: Member) -> _P:
    return draft if draft.sources else replace(draft, sources=(member.drafter.name,) * len(draft))


def _joined(first: Draft, more: Draft) -> Draft:
    """Return a draft and what follows it: a chain of which the first tokens were drawn, perhaps, the others chosen.

    It stays a chain with its laws, lest what follows, which depends on what was drawn, decide which rule verifies that.
    """
    return Draft(first.token_ids + more.token_ids, first.probs, sources=first.sources + more.sources)
