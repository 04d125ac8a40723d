"""Closed forms of the literature: what drafts are worth where acceptance and costs are known numbers.

``acceptance_prob`` is the chance that a *tested* draft token is accepted (the papers' alpha), ``token_cost`` that of
drafting one token in passes of one row of the target (their c). The planner itself predicts from whole rounds, since
none of the simplifications here, one chance for every place or one price for every pass, holds on a real machine; these
forms are what its parts are checked against, and what to reason with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf, prod
from operator import mul

from outrider.errors import UsageError

# Beyond so many draft tokens nothing is gained that would show in four digits.
_LONGEST = 1000


def _flat(_rows: int) -> float:
    """Return the cost of a pass that memory alone bounds: what checking several tokens would be at its best."""
    return 1.0


def survivals(acceptance_probs: Sequence[float]) -> list[float]:
    """Return for each place of a draft the chance that all tokens up to it are accepted."""
    for prob in acceptance_probs:
        _check(prob)
    return list(accumulate(acceptance_probs, mul))


def expected_tokens(acceptance_probs: Sequence[float]) -> float:
    """Return how many tokens a round emits on average, the recovered or bonus token included.

    With one chance for all places it is ``(1 - a^(k+1)) / (1 - a)``: Leviathan et al. (2211.17192), equation 1.

    Args:
        acceptance_probs: For each place of the draft, that its token is accepted if those before it were.
    """
    return 1.0 + sum(survivals(acceptance_probs))


def accepted_law(acceptance_prob: float, num_draft_tokens: int) -> list[float]:
    """Return the chance that 0, 1, ... all tokens of a draft are accepted (Leviathan et al., section 3.1)."""
    _check(acceptance_prob)
    stopped = [acceptance_prob**count * (1 - acceptance_prob) for count in range(num_draft_tokens)]
    return [*stopped, acceptance_prob**num_draft_tokens]


def acceptance_rate(acceptance_prob: float, num_draft_tokens: int) -> float:
    """Return accepted by drafted tokens, which is not the chance that a tested token is accepted: it is lower."""
    return (expected_tokens([acceptance_prob] * num_draft_tokens) - 1) / num_draft_tokens


def estimated_acceptance_prob(num_accepted: int, num_rejections: int) -> float | None:
    """Return the likeliest acceptance_prob, if it is one for all places; None where nothing was tested.

    Args:
        num_accepted: Draft tokens accepted.
        num_rejections: Drafts that were not accepted whole: each had one tested token turned back.
    """
    tested = num_accepted + num_rejections
    return num_accepted / tested if tested else None


def operations_factor(acceptance_prob: float, num_draft_tokens: int, operations_ratio: float = 0.0) -> float:
    """Return the arithmetic a token takes by plain decoding's (Leviathan et al., theorem 3.11).

    Args:
        acceptance_prob: See the module.
        num_draft_tokens: Of every round.
        operations_ratio: Of the draft for one token, by the target's.
    """
    operations = operations_ratio * num_draft_tokens + num_draft_tokens + 1
    return operations / expected_tokens([acceptance_prob] * num_draft_tokens)


def speedup(acceptance_probs: Sequence[float], token_cost: float, pass_cost: Callable[[int], float] = _flat) -> float:
    """Return the speed by plain decoding's (Leviathan et al., theorem 3.8, for chances and costs of any shape).

    Args:
        acceptance_probs: See :func:`expected_tokens`.
        token_cost: See the module.
        pass_cost: Of a pass of the target by its rows, one row being 1.
    """
    count = len(acceptance_probs)
    return expected_tokens(acceptance_probs) / (token_cost * count + pass_cost(count + 1))


def best_length(
    acceptance_probs: Sequence[float], token_cost: float, pass_cost: Callable[[int], float] = _flat
) -> tuple[int, float]:
    """Return the draft length, 0 included, of the highest speed, the smallest on a tie; and that speed."""
    speeds = [speedup(acceptance_probs[:count], token_cost, pass_cost) for count in range(len(acceptance_probs) + 1)]
    best = max(speeds)
    return speeds.index(best), best


def best_constant_length(acceptance_prob: float, token_cost: float) -> tuple[int, float]:
    """Return :func:`best_length` where all places have one chance and every pass of the target costs the same.

    Speed then has one peak, so that the search may stop at the first length that gains nothing.
    """
    _check(acceptance_prob)
    best = 1.0
    for length in range(1, _LONGEST):
        speed = speedup([acceptance_prob] * length, token_cost)
        if speed <= best:
            return length - 1, best
        best = speed
    raise UsageError(
        f"no draft is long enough at an acceptance_prob of {acceptance_prob} and a token_cost of {token_cost}; "
        "give a larger cost"
    )


def oracle_speedup(acceptance_prob: float, token_cost: float) -> float:
    """Return the speed of a drafter that knows where it will be turned back, and stops there: the bound of all."""
    _check(acceptance_prob)
    cost = 1 - acceptance_prob + acceptance_prob * token_cost
    return 1 / cost if cost > 0 else inf


def token_survivals(ratios: Sequence[float]) -> list[float]:
    """Return for each place the chance that the token rule accepts a draft up to it, given the text that came of it.

    On text drawn from the target's law, ``min(target, draft) = target * min(1, draft / target)`` makes what a draft
    would have done an average over the text alone: nobody needs to draw from the draft.

    Args:
        ratios: For each token of the text its probability under the draft by that under the target.
    """
    return list(accumulate((min(1.0, ratio) for ratio in ratios), mul))


def block_survivals(ratios: Sequence[float]) -> list[float]:
    """Return the same for the block rule (Sun et al., 2403.10444): the least of 1 and all ratios of whole beginnings.

    The rule keeps at least ``i`` tokens with the chance ``w_i = min(1, w_(i-1) * target / draft)`` of the drawn token,
    on average; times draft / target of the whole beginning that is ``min(r_1 ... r_i, what it was before)``.
    """
    return list(accumulate((min(1.0, prod(ratios[: place + 1])) for place in range(len(ratios))), min))


def _check(prob: float) -> None:
    if not 0 <= prob <= 1:
        raise UsageError(f"acceptance_prob is {prob}; it must be from 0 to 1")
