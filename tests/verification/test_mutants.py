"""The proof has teeth: each wrong variant is told from the target, by as much as was published where it was."""

from fractions import Fraction

import pytest

from outrider.audit.toy_laws import DRAFT_D, PAIRS, TARGET_D, fixed
from outrider.audit.wrong_variants import MUTANTS, RIGHT, Mutant
from outrider.verification.exact import Law, emitted_law, sequence_law, total_variation


def error(mutant: Mutant, target: Law, draft: Law, *, num_draft_tokens: int, num_tokens: int) -> Fraction:
    emitted = emitted_law(mutant(target, draft, num_draft_tokens), num_tokens)
    return total_variation(emitted, sequence_law(target, num_tokens))


@pytest.mark.parametrize("name", MUTANTS)
def test_proof_detects(name):
    pairs = [PAIRS["unlike"], PAIRS["four tokens"]]
    assert any(error(MUTANTS[name], *pair, num_draft_tokens=2, num_tokens=3) > 0 for pair in pairs)


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("pair", ["unlike", "four tokens"])
def test_proof_passes(name, pair):
    assert error(RIGHT[name], *PAIRS[pair], num_draft_tokens=2, num_tokens=3) == 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("recovers from the target's law", Fraction(14, 100)),
        ("recovers from the absolute difference", Fraction(20, 100)),
        ("proposes the argmax and tells the whole law", Fraction(5, 16)),
        ("drops unlikely tokens after drawing them", Fraction(6, 100)),
    ],
)
def test_error_on_the_reversed_four_token_toy_is_the_published_one(name, expected):
    assert error(MUTANTS[name], TARGET_D, DRAFT_D, num_draft_tokens=1, num_tokens=1) == expected


def test_verifying_only_what_leads_to_a_confident_continuation_errs_as_published():
    """DSpark, appendix A: the target (.7, .3), the draft (.5, .5)."""
    mutant = MUTANTS["verifies only what leads to a confident continuation"]
    assert error(mutant, fixed(7, 3), fixed(5, 5), num_draft_tokens=1, num_tokens=1) == Fraction(15, 100)


def test_candidate_law_that_tokens_were_not_drawn_from():
    """transformers#47932: drawn from the processed (.625, .375, 0), verified against the raw (.5, .3, .2)."""
    mutant = MUTANTS["draws from the truncated law and tells the raw one"]
    target, draft = fixed(4, 6, 0), fixed(5, 3, 2)
    assert error(mutant, target, draft, num_draft_tokens=1, num_tokens=1) == Fraction(1, 10)
    assert emitted_law(mutant(target, draft, 1), 1) == {(0,): Fraction(1, 2), (1,): Fraction(1, 2)}


def test_greedy_assistant_verified_against_its_softmax():
    """transformers#32867: the draft is always token 0, the ratio uses (.7, .3)."""
    mutant = MUTANTS["proposes the argmax and tells the whole law"]
    emitted = emitted_law(mutant(fixed(6, 4), fixed(7, 3), 1), 1)
    assert emitted == {(0,): Fraction(6, 7), (1,): Fraction(1, 7)}
    assert error(mutant, fixed(6, 4), fixed(7, 3), num_draft_tokens=1, num_tokens=1) == Fraction(9, 35)


def test_residual_passed_through_softmax_and_resampling_from_the_target():
    """transformers#28508, on the target (.5, .3, .2) and the draft (.2, .3, .5)."""
    target, draft = fixed(5, 3, 2), fixed(2, 3, 5)
    by_softmax = MUTANTS["recovers from a softmax of the residual"]
    emitted = emitted_law(by_softmax(target, draft, 1), 1)
    assert [round(float(emitted[token_id,]), 4) for token_id in range(3)] == [0.3209, 0.3896, 0.2896]
    assert round(float(error(by_softmax, target, draft, num_draft_tokens=1, num_tokens=1)), 3) == 0.179
    from_target = MUTANTS["recovers from the target's law"]
    assert error(from_target, target, draft, num_draft_tokens=1, num_tokens=1) == Fraction(15, 100)


def test_ratio_of_a_fresh_target_sample_and_recovery_from_the_next_row():
    """A rule read in another engine's source; the target (.9, .1) comes out with at least .3 for token 1."""
    mutant = MUTANTS["accepts against a fresh target sample"]
    emitted = emitted_law(mutant(fixed(9, 1), fixed(5, 5), 1), 1)
    assert emitted[1,] == Fraction(34, 100)


def test_accepting_everything_shows_as_full_acceptance_of_laws_half_apart():
    """vllm-ascend#13470: with the uniform stuck at 0 the error is the distance of the two laws."""
    target, draft = fixed(6, 3, 1), fixed(1, 3, 6)
    mutant = MUTANTS["accepts whatever the target allows"]
    assert error(mutant, target, draft, num_draft_tokens=1, num_tokens=1) == Fraction(1, 2)


def test_first_token_committed_unverified_shows_with_drafts_of_one_token():
    """lattice#243: an off-by-one that always accepted drafts of length one."""
    mutant = MUTANTS["commits the first token unverified"]
    assert error(mutant, fixed(0, 1), fixed(1, 0), num_draft_tokens=1, num_tokens=1) == 1


@pytest.mark.parametrize(
    "name", ["recovers against the draft's law of the row before", "takes the bonus from the row before"]
)
def test_context_free_examples_do_not_tell_rows_apart(name):
    """Why the proofs use models that depend on context: these pass every context-free toy."""
    assert error(MUTANTS[name], TARGET_D, DRAFT_D, num_draft_tokens=2, num_tokens=3) == 0
