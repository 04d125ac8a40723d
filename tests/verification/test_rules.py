"""The rules on floating point: what they refuse, what they leave alone, and what rounding may not do."""

import numpy as np
import pytest
from by_draft import verify

from outrider.errors import NumericalError, UsageError
from outrider.types import Draft, Outcome, VerificationResult
from outrider.verification import verify_block, verify_greedy, verify_point_mass, verify_token
from outrider.verification.coins import accept_at, draw_at

NAN = float("nan")
RULES = [verify_token, verify_point_mass]


class ScriptedCoins:
    """Decisions from a list of uniforms."""

    def __init__(self, *uniforms):
        self._uniforms = iter(uniforms)

    def accept(self, numerator, denominator):
        return accept_at(next(self._uniforms), numerator, denominator)

    def draw(self, weights):
        return draw_at(next(self._uniforms), weights)


def laws(*rows):
    return np.array(rows, dtype=np.float64)


# Two draft tokens over three, and the target's laws for them and after.
DRAFT = Draft((1, 2), laws([0.2, 0.5, 0.3], [0.1, 0.1, 0.8]))
TARGET = laws([0.5, 0.25, 0.25], [0.3, 0.3, 0.4], [0.6, 0.4, 0.0])


@pytest.mark.parametrize(
    ("uniforms", "expected"),
    [
        ((0.49, 0.49, 0.1), VerificationResult(2, 0, Outcome.BONUS)),
        ((0.49, 0.49, 0.7), VerificationResult(2, 1, Outcome.BONUS)),
        ((0.49, 0.51, 0.1), VerificationResult(1, 0, Outcome.RECOVERED)),
        ((0.49, 0.51, 0.9), VerificationResult(1, 1, Outcome.RECOVERED)),
        ((0.51, 0.9999), VerificationResult(0, 0, Outcome.RECOVERED)),
    ],
)
def test_token_rule_step_by_step(uniforms, expected):
    """Both ratios are one half; the residuals are (.3, 0, 0) and (.2, .2, 0)."""
    assert verify_token(DRAFT, TARGET, ScriptedCoins(*uniforms)) == expected


@pytest.mark.parametrize(
    ("uniforms", "expected"),
    [
        ((0.6, 0.7, 0.1), VerificationResult(2, 0, Outcome.BONUS)),
        ((0.6, 0.5), VerificationResult(1, 1, Outcome.RECOVERED)),
        ((0.4,), VerificationResult(0, 0, Outcome.RECOVERED)),
    ],
)
def test_point_mass_rule_step_by_step(uniforms, expected):
    assert verify_point_mass(Draft((1, 2)), TARGET, ScriptedCoins(*uniforms)) == expected


@pytest.mark.parametrize("rule", [verify_token, verify_block])
def test_rules_for_drawn_tokens_refuse_a_draft_without_laws(rule):
    """vllm#40149: laws that were asked for and never handed over, so that a fallback ran in silence."""
    with pytest.raises(UsageError, match="verify_point_mass"):
        rule(Draft(DRAFT.token_ids), TARGET, ScriptedCoins(0.45, 0.45, 0.1))


@pytest.mark.parametrize("rule", [verify_token, verify_point_mass])
def test_empty_draft_is_a_plain_decoding_step(rule):
    empty = Draft((), np.zeros((0, 3)))
    for draft in (empty, *([] if rule is verify_token else [Draft(())])):
        assert rule(draft, TARGET[:1], ScriptedCoins(0.6)) == VerificationResult(0, 1, Outcome.BONUS)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("uniform", [0.0, 0.3, 0.999])
def test_arguments_are_left_as_they_were(rule, uniform):
    """vllm-ascend#2881: the draft token's entry was zeroed in the caller's array."""
    draft, target = Draft(DRAFT.token_ids, DRAFT.probs.copy()), TARGET.copy()
    draft.probs.setflags(write=False)
    target.setflags(write=False)
    rule(draft, target, ScriptedCoins(uniform, uniform, uniform))
    assert (draft.probs == DRAFT.probs).all()
    assert (target == TARGET).all()


@pytest.mark.parametrize("rule", RULES)
def test_token_of_zero_target_probability_is_never_emitted(rule):
    """sglang#35771."""
    target = laws([1.0, 0.0], [0.5, 0.5])
    result = rule(Draft((1,), laws([0.5, 0.5])), target, ScriptedCoins(0.0, 0.0))
    assert result == VerificationResult(0, 0, Outcome.RECOVERED)


@pytest.mark.parametrize("scale", [1 - 2.0**-53, 1 - 2.0**-50])
def test_residual_that_rounding_cancelled_falls_back_to_the_targets_law(scale):
    """Two sums in different orders leave the target below the draft everywhere, by one unit in the last place."""
    drafted = laws([0.4, 0.35, 0.25])
    target = drafted * scale
    assert (target <= drafted).all()
    coins = ScriptedCoins(1 - 2.0**-53, 0.9)
    result = verify_token(Draft((1,), drafted), np.concatenate([target, drafted]), coins)
    assert result == VerificationResult(0, 2, Outcome.RECOVERED)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("bad_row", [0, 1, 2])
def test_nan_in_a_target_row_is_an_error_and_never_a_token(rule, bad_row, entry):
    """vllm#42722, #45060, #53029."""
    target = TARGET.copy()
    target[bad_row, entry] = NAN
    with pytest.raises(NumericalError, match=f"target_probs row {bad_row} holds NaN"):
        rule(
            DRAFT,
            target,
            ScriptedCoins(0.3 if rule is verify_token else 0.6, 0.45 if rule is verify_token else 0.7, 0.1),
        )


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_nan_in_a_draft_row_is_an_error_and_never_a_token(entry):
    """vllm#41834: the rejected token came out again."""
    probs = DRAFT.probs.copy()
    probs[0, entry] = NAN
    with pytest.raises(NumericalError, match="draft_probs row 0 holds NaN"):
        verify_token(Draft(DRAFT.token_ids, probs), TARGET, ScriptedCoins(0.3, 0.3, 0.3))


def test_laws_rounded_after_the_draw_are_refused():
    """DeepSpec#31: drawn in one precision, verified in another."""
    for draft, target in [
        (Draft(DRAFT.token_ids, DRAFT.probs.astype(np.float32)), TARGET),
        (DRAFT, TARGET.astype(np.float32)),
    ]:
        with pytest.raises(UsageError, match="float32; it must be float64"):
            verify(draft, target, ScriptedCoins(0.3, 0.3, 0.3))


def test_laws_are_refused_that_were_masked_and_not_renormalised():
    probs = DRAFT.probs.copy()
    probs[0, 0] = 0.0
    with pytest.raises(UsageError, match=r"draft_probs row 0 sums to 0\.8; a law sums to 1"):
        verify(Draft(DRAFT.token_ids, probs), TARGET, ScriptedCoins(0.3, 0.3, 0.3))


def test_draft_token_is_refused_that_its_own_law_makes_impossible():
    """The candidates of an argmax with the truncated law of something else."""
    probs = laws([0.5, 0.0, 0.5], [0.1, 0.1, 0.8])
    with pytest.raises(UsageError, match=r"draft token 0 is 1, to which its own law gives 0\.0"):
        verify(Draft((1, 2), probs), TARGET, ScriptedCoins(0.3, 0.3, 0.3))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("token_id", [-1, 3, 151_936])
def test_draft_token_outside_the_targets_vocabulary_is_refused(rule, token_id):
    with pytest.raises(UsageError, match=f"draft token 1 is {token_id}; the target's vocabulary has ids 0 to 2"):
        rule(Draft((1, token_id), DRAFT.probs), TARGET, ScriptedCoins(0.3, 0.3, 0.3))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("target", [TARGET[:2], TARGET[0], np.concatenate([TARGET, TARGET])])
def test_target_rows_must_be_one_more_than_draft_tokens(rule, target):
    with pytest.raises(UsageError, match="target_probs has shape"):
        rule(DRAFT, target, ScriptedCoins(0.3, 0.3, 0.3))


@pytest.mark.parametrize("probs", [np.zeros((3, 3)), DRAFT.probs[:, :2], np.zeros((2, 4)), DRAFT.probs[0, :2]])
def test_draft_laws_must_have_no_row_without_a_token_and_the_targets_width(probs):
    """vllm#13849 and others: vocabularies padded to different sizes."""
    with pytest.raises(UsageError, match=r"draft_probs has shape .*; expected \(2, 3\)"):
        verify_token(Draft((1, 1), probs), TARGET, ScriptedCoins(0.3, 0.3, 0.3))


def test_draft_of_a_smaller_padded_vocabulary_never_yields_padding():
    """Target 160 wide, draft 152 wide, 150 tokens in the tokenizer: padding has probability zero on both sides."""
    rng = np.random.default_rng(0)
    target, drafted = np.zeros((3, 160)), np.zeros((2, 160))
    target[:, :150], drafted[:, :150] = rng.random((3, 150)), rng.random((2, 150))
    target /= target.sum(axis=1, keepdims=True)
    drafted /= drafted.sum(axis=1, keepdims=True)
    for uniform in [0.0, 0.5, 1 - 2.0**-53]:
        token_ids = tuple(draw_at(uniform, row) for row in drafted)
        for verdict in [0.0, 1 - 2.0**-53]:
            result = verify(Draft(token_ids, drafted), target, ScriptedCoins(verdict, verdict, uniform))
            assert all(token_id < 150 for token_id in (*token_ids, result.next_token_id))


def test_greedy_rule_accepts_what_the_target_would_have_chosen():
    assert verify_greedy(Draft((4, 5, 6)), (4, 5, 7, 8)) == VerificationResult(2, 7, Outcome.RECOVERED)
    assert verify_greedy(Draft((4, 5)), np.array([4, 5, 7])) == VerificationResult(2, 7, Outcome.BONUS)
    assert verify_greedy(Draft(()), (3,)) == VerificationResult(0, 3, Outcome.BONUS)


@pytest.mark.parametrize("target_ids", [(4,), (4, 5), (4, 5, 6, 7)])
def test_greedy_rule_needs_one_target_choice_more_than_draft_tokens(target_ids):
    with pytest.raises(UsageError, match="a draft of 2 tokens needs 3"):
        verify_greedy(Draft((4, 5)), target_ids)
