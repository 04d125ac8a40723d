"""The proofs: every rule emits the target's law, exactly, whatever the draft."""

import doctest
from collections import defaultdict
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from by_draft import verify

import outrider.verification.exact
from outrider.audit.toy_laws import PAIRS, fixed, hashed, row
from outrider.types import Draft, Outcome, VerificationResult
from outrider.verification import verify_greedy, verify_point_mass, verify_token
from outrider.verification.exact import (
    Drafter,
    Law,
    dense_drafter,
    emitted_law,
    outcomes,
    point_mass_drafter,
    sequence_law,
    speculative_round,
    total_variation,
)


def is_exact(target: Law, drafter: Drafter, rule=verify, num_tokens: int = 3, prefix=()) -> bool:
    emitted = emitted_law(speculative_round(target, drafter, rule), num_tokens, prefix)
    return emitted == sequence_law(target, num_tokens, prefix)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("num_draft_tokens", [0, 1, 2])
def test_token_rule_emits_the_targets_law(name, num_draft_tokens):
    target, draft = PAIRS[name]
    assert is_exact(target, dense_drafter(draft, num_draft_tokens), verify_token)


@pytest.mark.parametrize("name", ["unlike", "impossible tokens", "draft of two tokens only"])
def test_token_rule_emits_the_targets_law_over_three_draft_tokens_and_the_one_after(name):
    target, draft = PAIRS[name]
    assert is_exact(target, dense_drafter(draft, 3), verify_token, num_tokens=4)


def test_token_rule_emits_the_targets_law_after_a_prompt():
    target, draft = PAIRS["impossible tokens"]
    assert is_exact(target, dense_drafter(draft, 2), verify_token, prefix=(2, 0, 1, 1))


@pytest.mark.parametrize("seed", range(100, 120))
def test_token_rule_emits_the_targets_law_on_random_models(seed):
    target, draft = hashed(3, seed, zeros=seed % 2 == 0), hashed(3, 1000 + seed, zeros=seed % 3 == 0)
    assert is_exact(target, dense_drafter(draft, 2), verify_token)


STOPPING = {
    "at a context": lambda draft: lambda prefix, probs: len(prefix) % 2 == 0,
    "after a token because of that token": lambda draft: lambda prefix, probs: prefix[-1:] != (0,),
    "before a token because of its law": lambda draft: lambda prefix, probs: max(probs) > Fraction(1, 2),
    "after a token that its law gave little": lambda draft: (
        lambda prefix, probs: not prefix or draft(prefix[:-1])[prefix[-1]] > Fraction(1, 4)
    ),
}


@pytest.mark.parametrize("stopping", STOPPING)
@pytest.mark.parametrize("name", ["unlike", "impossible tokens", "four tokens"])
def test_draft_lengths_may_depend_on_everything_but_the_token_in_question(name, stopping):
    target, draft = PAIRS[name]
    assert is_exact(target, dense_drafter(draft, 3, STOPPING[stopping](draft)), verify_token)


def unrolled(pick, law: Law, count: int):
    def choose(prefix):
        tokens = ()
        for _ in range(count):
            tokens = (*tokens, int(pick(law(prefix + tokens))))
        return tokens

    return choose


argmax, argmin = partial(unrolled, np.argmax), partial(unrolled, np.argmin)


def ngram(prefix):
    """Propose what followed the last earlier occurrence of the last token."""
    for end in range(len(prefix) - 1, 0, -1):
        if prefix[end - 1] == prefix[-1]:
            return prefix[end : end + 2]
    return ()


CHOICES = {
    "argmax of the draft": lambda target, draft: argmax(draft, 2),
    "argmax of the target": lambda target, draft: argmax(target, 2),
    "constant": lambda target, draft: lambda prefix: (1, 1, 1),
    "n-gram": lambda target, draft: ngram,
    "least likely, impossible if there are any": lambda target, draft: argmin(target, 2),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("choice", CHOICES)
def test_point_mass_rule_emits_the_targets_law(name, choice):
    target, draft = PAIRS[name]
    assert is_exact(target, point_mass_drafter(CHOICES[choice](target, draft)), verify_point_mass)


def test_point_mass_rule_emits_the_targets_law_over_three_draft_tokens_and_the_one_after():
    target, draft = PAIRS["unlike"]
    assert is_exact(target, point_mass_drafter(argmax(draft, 3)), verify_point_mass, num_tokens=4)


def test_point_mass_rule_does_not_even_need_the_laws_of_a_drawn_draft():
    target, draft = PAIRS["unlike"]
    assert is_exact(target, dense_drafter(draft, 2), verify_point_mass)


def test_token_rule_on_one_hot_laws_is_the_point_mass_rule():
    target, _draft = PAIRS["unlike"]
    one_hot = np.array([row(0, 1, 0), row(1, 0, 0)])
    probs = np.array([target(()), target((1,)), target((1, 0))])
    by_token = outcomes(lambda coins: verify_token(Draft((1, 0), one_hot), probs, coins))
    by_point_mass = outcomes(lambda coins: verify_point_mass(Draft((1, 0)), probs, coins))
    assert by_token == by_point_mass


@pytest.mark.parametrize("token_ids", [(), (1,), (0, 1), (2, 2), (2, 0), (2, 0, 1), (2, 0, 0)])
def test_every_rule_on_a_greedy_target_is_the_greedy_rule(token_ids):
    target_ids = (2, 0, 1, 1)[: len(token_ids) + 1]
    probs = np.array([row(*(int(i == token_id) for i in range(3))) for token_id in target_ids])
    expected = verify_greedy(Draft(token_ids), target_ids)
    dense = np.array([row(3, 2, 1)] * len(token_ids)).reshape(-1, 3)
    assert outcomes(lambda coins: verify_token(Draft(token_ids, dense), probs, coins)) == {expected: 1}
    assert outcomes(lambda coins: verify_point_mass(Draft(token_ids), probs, coins)) == {expected: 1}


def test_rounds_with_different_rules_and_drafters_compose():
    target, draft = PAIRS["unlike"]
    dense, point = dense_drafter(draft, 2), point_mass_drafter(lambda _prefix: (1, 2))
    assert is_exact(target, lambda prefix, coins: (point if len(prefix) % 2 else dense)(prefix, coins), verify)


@pytest.mark.parametrize("name", PAIRS)
def test_a_draft_token_is_accepted_as_often_as_the_two_laws_overlap(name):
    """Acceptance is the overlap of the laws, one minus their total variation: no less would be losslessly slow."""
    target, draft = PAIRS[name]
    drafter = dense_drafter(draft, 1)

    def num_accepted(coins):
        proposed = drafter((), coins)
        probs = np.array([target(()), target(proposed.token_ids)])
        return verify_token(proposed, probs, coins).num_accepted

    overlap = sum(np.minimum(target(()), draft(())))
    assert outcomes(num_accepted).get(1, 0) == overlap
    assert overlap == 1 - sum(abs(target(()) - draft(()))) / 2


@pytest.mark.parametrize(
    ("num_draft_tokens", "expected"),
    [(1, Fraction(2, 3)), (2, Fraction(10, 9)), (3, Fraction(38, 27)), (4, Fraction(130, 81)), (5, Fraction(422, 243))],
)
def test_expected_accepted_tokens_of_the_token_rule_on_the_published_toy(num_draft_tokens, expected):
    """Sun et al. (2403.10444), lemma 1: the target (1/3, 2/3), the draft (2/3, 1/3)."""
    target, drafter = fixed(1, 2), dense_drafter(fixed(2, 1), num_draft_tokens)

    def num_accepted(coins):
        draft = drafter((), coins)
        return verify_token(draft, np.array([target(())] * (len(draft) + 1)), coins).num_accepted

    assert sum(count * probability for count, probability in outcomes(num_accepted).items()) == expected


def test_outcomes_enumerates_every_branch_once():
    def experiment(coins):
        first = coins.draw(row(1, 0, 3))
        return (first, coins.accept(1, 3) if first else coins.draw(row(1, 1)))

    assert outcomes(experiment) == {
        (0, 0): Fraction(1, 8),
        (0, 1): Fraction(1, 8),
        (2, True): Fraction(1, 4),
        (2, False): Fraction(1, 2),
    }


@pytest.mark.parametrize(("numerator", "denominator", "accepts"), [(0, 0, False), (0, 1, False), (2, 1, True)])
def test_certain_decisions_have_one_branch(numerator, denominator, accepts):
    assert outcomes(lambda coins: coins.accept(numerator, denominator)) == {accepts: 1}


def test_total_variation_of_equal_disjoint_and_overlapping_laws():
    half = Fraction(1, 2)
    assert total_variation({0: half, 1: half}, {0: half, 1: half}) == 0
    assert total_variation({0: half, 1: half}, {2: Fraction(1)}) == 1
    assert total_variation({0: half, 1: half}, {0: Fraction(1)}) == half


def test_emitted_law_continues_rounds_of_uneven_length():
    """A round of one token or of three: the law of two tokens needs one round or two."""

    def emit(prefix, coins):
        return (0,) if coins.accept(1, 2) else (1, 1, 1)

    half, quarter = Fraction(1, 2), Fraction(1, 4)
    assert emitted_law(emit, 2) == {(1, 1): half, (0, 0): quarter, (0, 1): quarter}


def test_the_proof_runs_the_documented_example():
    assert doctest.testmod(outrider.verification.exact).failed == 0


def test_the_examples_are_context_dependent():
    """A proof on context-free laws misses a rule that takes a law from the wrong position."""
    laws = defaultdict(set)
    for name, (target, _draft) in PAIRS.items():
        for prefix in [(), (0,), (1,), (0, 1), (1, 0)]:
            laws[name].add(tuple(target(prefix)))
    assert sum(len(rows) > 2 for rows in laws.values()) >= 8


def test_results_say_what_happened():
    probs = np.array([row(1, 0), row(0, 1)])
    assert outcomes(lambda coins: verify(Draft((0,)), probs, coins)) == {VerificationResult(1, 1, Outcome.BONUS): 1}
    assert outcomes(lambda coins: verify(Draft((1,)), probs, coins)) == {VerificationResult(0, 0, Outcome.RECOVERED): 1}
