"""Wrong variants of the rules, most of them shipped by someone: the negative controls of the exact proofs.

Nothing in the engine can reach them.

A mutant is a function ``(target, draft, num_draft_tokens) -> Round``, so that it may be wrong in its rule, in its
drafter's honesty, or in how it spends randomness.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import exp
from typing import Any, TypeAlias

import numpy as np

from outrider.types import Coins, Draft, Outcome, VerificationResult
from outrider.verification import verify_point_mass, verify_token
from outrider.verification.exact import Law, Prefix, Round, Rule, dense_drafter, point_mass_drafter, speculative_round
from outrider.verification.token import residual

Probs: TypeAlias = Any  # arrays of fractions, one row or more
Mutant = Callable[[Law, Law, int], Round]
# What is recovered from, what is accepted by, and what the bonus is drawn from: given draft, target laws and row.
Recover = Callable[[Any, Any, int], Any]


def recovered(row: int, token_id: int) -> VerificationResult:
    """Return what a rule says that recovers a token in place of a draft token."""
    return VerificationResult(row, token_id, Outcome.RECOVERED)


def _at_token(laws: Any, draft: Draft, row: int) -> Any:
    return laws[row][draft.token_ids[row]]


def token_rule(
    recover: Recover = lambda draft, probs, row: residual(probs[row], draft.probs[row]),
    ratio: Recover = lambda draft, probs, row: (_at_token(probs, draft, row), _at_token(draft.probs, draft, row)),
    bonus: Callable[[Any, Any], Any] = lambda draft, probs: probs[len(draft)],
) -> Rule:
    """Return the token rule with a part replaced; right as it stands, but without the checks of arguments."""

    def rule(draft: Any, probs: Any, coins: Coins) -> VerificationResult:
        for row in range(len(draft)):
            if not coins.accept(*ratio(draft, probs, row)):
                return recovered(row, coins.draw(recover(draft, probs, row)))
        return VerificationResult(len(draft), coins.draw(bonus(draft, probs)), Outcome.BONUS)

    return rule


def with_rule(rule: Rule) -> Mutant:
    """Return a mutant whose drafter draws from the draft law and tells it."""
    return lambda target, draft, count: speculative_round(target, dense_drafter(draft, count), rule)


def with_point_mass_rule(rule: Rule) -> Mutant:
    """Return a mutant whose drafter proposes the likeliest tokens of the draft law."""

    def mutant(target: Law, draft: Law, count: int) -> Round:
        return speculative_round(target, point_mass_drafter(lambda prefix: _argmax(draft, prefix, count)), rule)

    return mutant


def _argmax(law: Law, prefix: Prefix, count: int) -> Prefix:
    tokens: Prefix = ()
    for _ in range(count):
        tokens = (*tokens, int(np.argmax(law(prefix + tokens))))
    return tokens


def _softmax(weights: Probs) -> Probs:
    return np.array([Fraction(exp(weight)) for weight in weights])


def _without(probs: Probs, token_id: int) -> Probs:
    kept = probs.copy()
    kept[token_id] = Fraction(0)
    return kept if kept.sum() > 0 else probs


def _accepts_whatever_the_target_allows(draft: Any, probs: Probs, row: int) -> tuple[int, int]:
    token_id = draft.token_ids[row]
    return (1 if probs[row][token_id] > 0 else 0, 1)


def _accepts_above_a_threshold(draft: Any, probs: Probs, row: int) -> tuple[int, int]:
    return (1 if probs[row][draft.token_ids[row]] >= Fraction(3, 10) else 0, 1)


def _previous_drafts(draft: Any, row: int) -> Any:
    return draft.probs[max(row - 1, 0)]


def _first_token_committed_unverified(target: Law, draft: Law, count: int) -> Round:
    drafter = dense_drafter(draft, max(count, 1))

    def emit(prefix: Prefix, coins: Coins) -> Prefix:
        proposed: Any = drafter(prefix, coins)
        first, rest = proposed.token_ids[:1], proposed.token_ids[1:]
        probs = np.array([target(prefix + first + rest[:row]) for row in range(len(rest) + 1)])
        result = verify_token(Draft(rest, proposed.probs[1:]), probs, coins)
        return (*first, *rest[: result.num_accepted], result.next_token_id)

    return emit


def goes_on_after_a_rejection(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    """Commit the last draft token that passes, whatever became of those before it."""
    passed = [row for row, x in enumerate(draft.token_ids) if coins.accept(probs[row][x], draft.probs[row][x])]
    row = passed[-1] + 1 if passed else 0
    if row == len(draft):
        return VerificationResult(row, coins.draw(probs[row]), Outcome.BONUS)
    return recovered(row, coins.draw(residual(probs[row], draft.probs[row])))


def one_coin_for_all_positions(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    """One uniform against every ratio: given that it passed the smallest so far, it passes a larger one for certain."""
    lowest = Fraction(1)
    for row, x in enumerate(draft.token_ids):
        ratio = min(Fraction(1), probs[row][x] / draft.probs[row][x])
        if not coins.accept(min(lowest, ratio), lowest):
            return recovered(row, coins.draw(residual(probs[row], draft.probs[row])))
        lowest = min(lowest, ratio)
    return VerificationResult(len(draft), coins.draw(probs[len(draft)]), Outcome.BONUS)


def overlap(low: Any, high: Any, weights: Probs) -> Probs:
    """Return how much of [low, high) falls to each weight on the line from 0 to 1."""
    ends: Any = np.cumsum(weights / weights.sum())
    starts: Any = np.concatenate([[Fraction(0)], ends])
    clipped: Any = np.minimum(np.maximum(starts, low), high)
    return clipped[1:] - clipped[:-1]


def recovers_with_the_coin_that_rejected(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    """The uniform that rejected lies above the ratio; the residual's inverse CDF is read at that same number."""
    for row, x in enumerate(draft.token_ids):
        ratio = min(Fraction(1), probs[row][x] / draft.probs[row][x])
        if not coins.accept(ratio, 1):
            return recovered(row, coins.draw(overlap(ratio, Fraction(1), residual(probs[row], draft.probs[row]))))
    return VerificationResult(len(draft), coins.draw(probs[len(draft)]), Outcome.BONUS)


def accepts_with_the_coin_that_drafted(target: Law, draft: Law, _count: int) -> Round:
    """One uniform draws the draft token by inverse CDF, and is then held against its ratio."""

    def emit(prefix: Prefix, coins: Coins) -> Prefix:
        target_probs, draft_probs = target(prefix), draft(prefix)
        x = coins.draw(draft_probs)
        low = draft_probs[:x].sum()
        ratio = min(Fraction(1), target_probs[x] / draft_probs[x])
        passing = max(min(low + draft_probs[x], ratio) - low, Fraction(0))
        if coins.accept(passing, draft_probs[x]):
            return (x, coins.draw(target((*prefix, x))))
        return (coins.draw(residual(target_probs, draft_probs)),)

    return emit


def ratio_against_a_fresh_target_sample(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    """The draft's probability of its token over the target's of another one; recovery from the row after."""
    for row, x in enumerate(draft.token_ids):
        fresh = coins.draw(probs[row])
        if not coins.accept(draft.probs[row][x], probs[row][fresh]):
            return recovered(row, coins.draw(probs[row + 1]))
    return VerificationResult(len(draft), coins.draw(probs[len(draft)]), Outcome.BONUS)


def _emits_the_token_it_rejected(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    result = verify_token(draft, probs, coins)
    if result.outcome is Outcome.RECOVERED and result.num_accepted == 0:
        return replace(result, next_token_id=draft.token_ids[0])
    return result


def lies_about_its_law(told: Callable[[Probs], Probs], drawn: Callable[[Probs], Probs]) -> Mutant:
    """Return a round in which tokens are drawn from one law and verified against another."""

    def mutant(target: Law, draft: Law, count: int) -> Round:
        drafter = dense_drafter(lambda prefix: drawn(draft(prefix)), count)

        def lying(prefix: Prefix, coins: Coins) -> Draft:
            proposed = drafter(prefix, coins)
            rows = [told(draft(prefix + proposed.token_ids[:row])) for row in range(len(proposed))]
            return Draft(proposed.token_ids, np.array(rows))

        return speculative_round(target, lying, token_rule())

    return mutant


def _likeliest_two(probs: Probs) -> Probs:
    kept = np.array([Fraction(0)] * len(probs))
    for token_id in sorted(range(len(probs)), key=lambda token_id: -probs[token_id])[:2]:
        kept[token_id] = probs[token_id]
    return kept


def _renormalised(probs: Probs) -> Probs:
    return probs / probs.sum()


def _one_hot(probs: Probs) -> Probs:
    kept = np.array([Fraction(0)] * len(probs))
    kept[int(np.argmax(probs))] = Fraction(1)
    return kept


def drops_unlikely_tokens_after_drawing_them(target: Law, draft: Law, _count: int) -> Round:
    """The drafter looks at its token, finds that it gave it less than 15% and stops before it."""

    def propose(prefix: Prefix, coins: Coins) -> Draft:
        probs = draft(prefix)
        token_id = coins.draw(probs)
        if probs[token_id] < Fraction(15, 100):
            return Draft((), np.zeros((0, len(probs))))
        return Draft((token_id,), np.array([probs]))

    return speculative_round(target, propose, verify_token)


def verifies_only_what_leads_to_a_confident_continuation(target: Law, draft: Law, _count: int) -> Round:
    """The length of the draft is chosen from how sure the draft is after its own first token."""

    def propose(prefix: Prefix, coins: Coins) -> Draft:
        probs = draft(prefix)
        token_id = coins.draw(probs)
        if token_id != 0:  # in this toy the draft is sure of what follows token 0 only
            return Draft((), np.zeros((0, len(probs))))
        return Draft((token_id,), np.array([probs]))

    return speculative_round(target, propose, verify_token)


def _accepts_every_match(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    return VerificationResult(len(draft), coins.draw(probs[len(draft)]), Outcome.BONUS)


def _draws_again_after_a_mismatch(draft: Any, probs: Probs, coins: Coins) -> VerificationResult:
    for row, x in enumerate(draft.token_ids):
        if coins.draw(probs[row]) != x:
            return recovered(row, coins.draw(probs[row]))
    return VerificationResult(len(draft), coins.draw(probs[len(draft)]), Outcome.BONUS)


def _leaks_a_little_to_every_token(draft: Any, probs: Probs, row: int) -> Any:
    left: Any = residual(probs[row], draft.probs[row])
    return np.maximum(left, np.array(Fraction(1, 10**6)))


def _bonus_without_a_round_of_its_own(draft: Any, probs: Probs) -> Any:
    return probs[max(len(draft) - 1, 0)]


RULES: dict[str, Rule] = {
    # what a rejected token is replaced with
    "recovers from the target's law": token_rule(recover=lambda _draft, probs, row: probs[row]),
    "recovers from the absolute difference": token_rule(
        recover=lambda draft, probs, row: abs(probs[row] - draft.probs[row])
    ),
    "recovers from a softmax of the residual": token_rule(
        recover=lambda draft, probs, row: _softmax(residual(probs[row], draft.probs[row]))
    ),
    "recovers from the row after": token_rule(
        recover=lambda draft, probs, row: residual(probs[row + 1], draft.probs[row])
    ),
    "recovers from the row before": token_rule(
        recover=lambda draft, probs, row: residual(probs[max(row - 1, 0)], draft.probs[row])
    ),
    "recovers against the draft's law of the row before": token_rule(
        recover=lambda draft, probs, row: residual(probs[row], _previous_drafts(draft, row))
    ),
    "recovers as if the draft had been certain": token_rule(
        recover=lambda draft, probs, row: _without(probs[row], draft.token_ids[row])
    ),
    "recovers with a floor under every weight": token_rule(recover=_leaks_a_little_to_every_token),
    "recovers from the draft's law": token_rule(recover=lambda draft, _probs, row: draft.probs[row]),
    "emits the token it rejected": _emits_the_token_it_rejected,
    "recovers with the coin that rejected": recovers_with_the_coin_that_rejected,
    # what is accepted
    "accepts whatever the target allows": token_rule(ratio=_accepts_whatever_the_target_allows),
    "accepts above a threshold": token_rule(ratio=_accepts_above_a_threshold),
    "accepts with the ratio upside down": token_rule(
        ratio=lambda draft, probs, row: (_at_token(draft.probs, draft, row), _at_token(probs, draft, row))
    ),
    "accepts against the draft's law of the row before": token_rule(
        ratio=lambda draft, probs, row: (
            _at_token(probs, draft, row),
            _previous_drafts(draft, row)[draft.token_ids[row]],
        )
    ),
    "accepts by the target's law of the row after": token_rule(
        ratio=lambda draft, probs, row: (
            _at_token(probs[1:], draft, row),
            _at_token(draft.probs, draft, row),
        )
    ),
    "accepts against a fresh target sample": ratio_against_a_fresh_target_sample,
    "accepts all positions with one coin": one_coin_for_all_positions,
    "goes on after a rejection": goes_on_after_a_rejection,
    # the bonus token
    "takes the bonus from the draft": token_rule(
        bonus=lambda draft, probs: draft.probs[-1] if len(draft) else probs[0]
    ),
    "takes the bonus from the row before": token_rule(bonus=_bonus_without_a_round_of_its_own),
}

MUTANTS: dict[str, Mutant] = {
    **{name: with_rule(rule) for name, rule in RULES.items()},
    "accepts with the coin that drafted": accepts_with_the_coin_that_drafted,
    "commits the first token unverified": _first_token_committed_unverified,
    # drafts that are not honest about their laws
    "draws from the truncated law and tells the raw one": lies_about_its_law(
        told=lambda probs: probs, drawn=lambda probs: _renormalised(_likeliest_two(probs))
    ),
    "draws from the raw law and tells the truncated one": lies_about_its_law(
        told=lambda probs: _renormalised(_likeliest_two(probs)), drawn=lambda probs: probs
    ),
    "tells a truncated law that was not renormalised": lies_about_its_law(
        told=_likeliest_two, drawn=lambda probs: _renormalised(_likeliest_two(probs))
    ),
    "proposes the argmax and tells the whole law": lies_about_its_law(told=lambda probs: probs, drawn=_one_hot),
    "draws and tells a certainty": lies_about_its_law(told=_one_hot, drawn=lambda probs: probs),
    "draws at another temperature than it tells": lies_about_its_law(
        told=lambda probs: probs, drawn=lambda probs: _renormalised(probs**2)
    ),
    # draft lengths that look ahead
    "drops unlikely tokens after drawing them": drops_unlikely_tokens_after_drawing_them,
    "verifies only what leads to a confident continuation": verifies_only_what_leads_to_a_confident_continuation,
    # tokens chosen without drawing
    "accepts every match": with_point_mass_rule(_accepts_every_match),
    "draws again after a mismatch": with_point_mass_rule(_draws_again_after_a_mismatch),
}

RIGHT: dict[str, Mutant] = {
    "token rule rebuilt from the mutants' parts": with_rule(token_rule()),
    "token rule": with_rule(verify_token),
    "point-mass rule": with_point_mass_rule(verify_point_mass),
    "honest drafter told as the liars are": lies_about_its_law(told=lambda probs: probs, drawn=lambda probs: probs),
}
