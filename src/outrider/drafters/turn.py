"""One request in one round of a controller: what may be drafted for it, and how requests share a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from typing import TypeVar

from outrider.drafters.base import DraftRequest
from outrider.drafters.experience import Memory, Record
from outrider.drafters.gain import PassCosts
from outrider.types import Draft, Proposal

_P = TypeVar("_P", bound=Proposal)
NOTHING = Draft(())


@dataclass(slots=True)
class Turn:
    """One request in one round.

    Attributes:
        rate: Tokens that a unit of cost earns.
        num_before: Rows that the pass has for other requests.
        offer: The best draft that was looked up, as long as it pays, and its gain; ``offered_by`` is its member.
        chosen: Who drafts, and at most how many tokens at which cost each; None for nobody.
        is_probe: Whether that one promises nothing, and is tried all the same.
    """

    request: DraftRequest
    memory: Memory
    rate: float = 1.0
    num_before: int = 0
    offer: Draft = NOTHING
    gain: float = 0.0
    offered_by: int | None = None
    chosen: int | None = None
    limit: int = 0
    token_cost: float = 0.0
    is_probe: bool = False
    draft: Proposal = NOTHING
    problem: str | None = None


def share(turns: Sequence[Turn], costs: PassCosts) -> None:
    """Let the likeliest tokens of all requests have the rows of the pass, as many as pay.

    How likely a token is right if those before it are is known from what was chosen, or from a record; nothing
    drawn has a say. A request's own tokens are the likelier the earlier, so that it keeps its first.
    """
    values = [
        (value - turn.rate * costs.per_row_context * turn.memory.length, -place, -number)
        for number, turn in enumerate(turns)
        for place, value in enumerate(_values(turn))
    ]
    num_rows, rate = turns[0].num_before + 1, turns[0].rate
    best, best_gain, total = 0, 0.0, 0.0
    values.sort(reverse=True)
    for count, (value, _, _) in enumerate(values, start=1):
        total += value
        gain = total - rate * (costs.at(num_rows + count) - costs.at(num_rows))
        if gain > best_gain:
            best, best_gain = count, gain
    for number, turn in enumerate(turns):
        own = sum(-other == number for _, _, other in values[:best])
        turn.num_before += best - own
        if turn.is_probe:
            continue
        turn.offer, turn.limit = cut(turn.offer, own), min(turn.limit, own)
        if own == 0:
            turn.chosen = turn.offered_by = None


def charge(turns: Sequence[Turn], costs: PassCosts) -> None:
    """Let each draft of a round bear its share of what all of them add to the pass, if that is more than what it adds.

    Where the first rows are dear and more of them cheap, each draft by itself would seem to add next to nothing.
    """
    num_rows, count = turns[0].request.num_other_rows + len(turns), sum(len(turn.draft) for turn in turns)
    together = costs.at(num_rows + count) - costs.at(num_rows)
    for turn in turns:
        own, before = len(turn.draft), 1 + turn.num_before
        missing = together * own / max(1, count) - (costs.at(before + own) - costs.at(before))
        turn.memory.added += max(0.0, missing)
        turn.memory.cost += max(0.0, missing)


def _values(turn: Turn) -> list[float]:
    """Return what each planned token of a request is likely to add, less what drafting it costs."""
    if turn.chosen is None or turn.is_probe:
        return []
    record = turn.memory.standings[turn.chosen].record
    if turn.chosen == turn.offered_by:
        return list(accumulate(chances(turn.offer, record), mul))
    return [record.chance**count - turn.rate * turn.token_cost for count in range(1, turn.limit + 1)]


def may_grow(turn: Turn) -> bool:
    """Whether a round is drafted by a model whose draft, a chain, may be followed by something."""
    is_model = turn.chosen is not None and turn.chosen != turn.offered_by
    has_room = len(turn.draft) < turn.request.max_tokens
    return is_model and has_room and isinstance(turn.draft, Draft) and turn.draft.problem is None


def continuation(turn: Turn) -> DraftRequest:
    """Return the wish for what may follow the draft."""
    room = turn.request.max_tokens - len(turn.draft)
    return replace(turn.request, max_tokens=room, max_tree_tokens=0, draft_ids=turn.draft.token_ids)


def finished(turn: Turn) -> Proposal:
    """Return the draft, with what went wrong on the way."""
    if turn.problem is None:
        return turn.draft
    return replace(turn.draft, problem=turn.problem)


def chances(draft: Draft, record: Record) -> Sequence[float]:
    """Return how likely each token is accepted if those before it are, by its drafter or else by its record."""
    return draft.confidences or [record.chance] * len(draft)


def num_passes(draft: Proposal) -> int:
    """Return how many passes of its model a draft took."""
    return (draft.num_passes if isinstance(draft, Draft) else None) or draft.depth


def cut(draft: Draft, length: int) -> Draft:
    """Return the beginning of a draft whose tokens were chosen."""
    return replace(
        draft,
        token_ids=draft.token_ids[:length],
        confidences=draft.confidences[:length],
        sources=draft.sources[:length],
    )


def named(draft: _P, name: str) -> _P:
    """Return a draft that tells who proposed it."""
    return draft if draft.sources else replace(draft, sources=(name,) * len(draft))


def joined(first: Draft, more: Draft) -> Draft:
    """Return a draft and what follows it: a chain of which the first tokens were drawn, perhaps, the others chosen.

    It stays a chain with its laws, lest what follows, which depends on what was drawn, decide which rule verifies that.
    """
    return Draft(first.token_ids + more.token_ids, first.probs, sources=first.sources + more.sources)
