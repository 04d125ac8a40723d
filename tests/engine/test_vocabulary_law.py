"""What is emitted follows the target's law when the draft has other tokens, and wrong laws of the draft would show.

Two proofs by enumeration: of the method in fractions, beside its wrong variants, and of the drafter in the engine.
"""

from fractions import Fraction

import numpy as np
import pytest
from engine_fakes import compiled, make_stepper
from small_vocabularies import byte_level
from test_law import SameCoins

from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.other_vocabulary import OtherVocabularyDrafter
from outrider.engine.sequence import Request
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.sampling.params import SamplingParams
from outrider.types import Draft, Outcome, VerificationResult
from outrider.verification import verify_token
from outrider.verification.exact import (
    dense_drafter,
    emitted_law,
    outcomes,
    sequence_law,
    speculative_round,
    total_variation,
)
from outrider.verification.token import residual

TARGET = HashLM(3, seed=5, min_weight=0)
DRAFT = HashLM(5, seed=8)
JOINT_IDS = (2, 0, 0, None, 1)  # of the draft's tokens: two say the same, one is not the target's


def draft_weights(prefix):
    """The draft's law on its own tokens; it reads a context of target tokens as some of its own."""
    return exact_probs(DRAFT, [JOINT_IDS.index(token_id) for token_id in prefix])


def shared(prefix):
    weights = np.array([Fraction(0)] * 3)
    for weight, joint_id in zip(draft_weights(prefix), JOINT_IDS, strict=True):
        if joint_id is not None:
            weights[joint_id] += weight
    return weights


def intersection(prefix):
    weights = shared(prefix)
    return weights / weights.sum()


def last_of_each(prefix):
    """Forgets that two tokens of the draft say the same."""
    weights = shared(prefix)
    weights[0] = draft_weights(prefix)[2]
    return weights / weights.sum()


def unchecked(draft, probs, coins):
    """The token rule, believing whatever the draft tells of its laws."""
    for row, token_id in enumerate(draft.token_ids):
        if not coins.accept(probs[row][token_id], draft.probs[row][token_id]):
            return VerificationResult(row, coins.draw(residual(probs[row], draft.probs[row])), Outcome.RECOVERED)
    return VerificationResult(len(draft), coins.draw(probs[len(draft)]), Outcome.BONUS)


def telling(law):
    """Draw from the intersection and tell another law."""
    honest = dense_drafter(intersection, 2)

    def propose(prefix, coins):
        token_ids = honest(prefix, coins).token_ids
        return Draft(token_ids, np.array([law(prefix + token_ids[:row]) for row in range(len(token_ids))]))

    return propose


def error(drafter, rule):
    def target(prefix):
        return exact_probs(TARGET, prefix)

    return total_variation(emitted_law(speculative_round(target, drafter, rule), 3), sequence_law(target, 3))


@pytest.mark.parametrize("rule", [verify_token, unchecked])
def test_the_intersection_law_is_exact(rule):
    assert error(dense_drafter(intersection, 2), rule) == 0


@pytest.mark.parametrize("wrong", [shared, last_of_each])
def test_a_law_not_renormalised_and_forgotten_sums_are_detected(wrong):
    assert error(telling(wrong), unchecked) > 0


def test_the_published_toy():
    """Target (.4, .3, .2, .1); draft (.1, .2, .3) on the shared tokens and .4 on its own."""
    target = np.array([Fraction(n, 10) for n in (4, 3, 2, 1)])
    law = np.array([Fraction(1, 6), Fraction(1, 3), Fraction(1, 2), Fraction(0)])
    vocabulary = JointVocabulary(byte_level("abcd"), 4, byte_level("abcx"), 4)
    weights = np.zeros(4)
    weights[vocabulary.joint_ids[:3]] = (1, 2, 3)
    assert (weights / weights.sum()).tolist() == law.astype(float).tolist()
    assert np.minimum(target, law).sum() == Fraction(2, 3)


def stranger(strings, draft_texts=("b", "ab", "a", "x", "ba")):
    target = byte_level(["a", "b", "ab"])
    draft = byte_level(draft_texts)
    joint = JointVocabulary(target, 3, draft, draft.vocab_size)
    backend = ToyBackend(HashLM(draft.vocab_size, seed=9))
    return OtherVocabularyDrafter(backend, joint, name="stranger", min_confidence=0.1, strings=strings)


@pytest.mark.parametrize("strings", [True, False])
@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_law_of_an_answer_is_the_targets(rule, strings, temperature):
    params = SamplingParams(temperature=temperature, max_tokens=4)

    def one_answer(coins, drafter):
        stepper = make_stepper(TARGET, drafter=drafter, k=2, rule=rule)
        sequence = stepper.open(Request(0, (0, 1), compiled(params, 3), seed=0))
        sequence.coins = SameCoins(coins)
        while sequence.finish_reason is None:
            stepper.step([sequence])
        return tuple(sequence.token_ids[2:])

    plain = outcomes(lambda coins: one_answer(coins, None))
    emitted = outcomes(lambda coins: one_answer(coins, stranger(strings)))
    assert sum(emitted.values()) == pytest.approx(1)
    assert float(total_variation(emitted, plain)) < 1e-6


@pytest.mark.parametrize("strings", [True, False])
@pytest.mark.parametrize(
    "params", [SamplingParams(max_tokens=30), SamplingParams(max_tokens=30, temperature=1.0, seed=3)]
)
def test_greedy_and_seeded_answers_do_not_depend_on_the_stranger(params, strings):
    def answer(drafter):
        stepper = make_stepper(TARGET, drafter=drafter, k=4)
        sequence = stepper.open(Request(0, (0, 1), compiled(params, 3), seed=3))
        while sequence.finish_reason is None:
            stepper.step([sequence])
        return sequence.token_ids

    assert answer(stranger(strings)) == answer(None)
