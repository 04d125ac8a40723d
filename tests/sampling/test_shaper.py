"""Every setting keeps the target's law with speculation, exactly; and shaping leaves no trace."""

from itertools import product

import numpy as np
import pytest
from processed import (
    DRAFTERS,
    PROMPT,
    SETTINGS,
    TARGET,
    VOCAB_SIZE,
    answer_law,
    make_shaper,
    params,
    reference_law,
    reference_logits,
    rows,
    wanted_law,
)

from outrider.errors import NumericalError
from outrider.sampling import greedy_token_ids, target_probs
from outrider.verification.exact import total_variation

CASES = [(name, rule) for name, (_, rules) in DRAFTERS.items() for rule in rules]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(("drafter", "rule"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_the_law_of_an_answer_is_the_targets_with_every_setting(setting, drafter, rule):
    """The joint law of a round of three tokens and of what follows when fewer were accepted."""
    one = SETTINGS[setting]
    law = answer_law(one, DRAFTERS[drafter][0], rule, num_tokens=3)
    assert sum(law.values()) == 1
    assert float(total_variation(law, wanted_law(one, 3))) < 1e-12


@pytest.mark.parametrize("setting", ["everything", "frequency_penalty", "bad_words", "min_tokens"])
def test_the_law_holds_over_a_draft_of_three_and_the_token_after(setting):
    one = SETTINGS[setting]
    drafter, rules = DRAFTERS["restricted, shaped"]
    law = answer_law(one, drafter, rules[1], num_tokens=4, num_draft_tokens=3)
    assert float(total_variation(law, wanted_law(one, 4))) < 1e-12


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_row_is_what_plain_decoding_sees(setting):
    """Bit for bit: all positions of a round at once, the last ones only, or each when its turn has come."""
    one = SETTINGS[setting]
    for committed, draft in product([(), (2,), (2, 0, 2)], [(), (1,), (2, 0), (0, 2, 3), (2, 2, 2)]):
        shaper = make_shaper(one)
        for token_id in committed:
            shaper.advance(token_id)
        logits = rows(TARGET, (*PROMPT, *committed), draft)
        together = shaper.shape(logits, draft)
        for count in range(len(logits)):
            assert (shaper.shape(logits[count:], draft) == together[count:]).all()
            assert (shaper.shape(logits[count : count + 1], draft[:count]) == together[count]).all()
            output = (*committed, *draft[:count])
            assert together[count].tolist() == reference_logits(logits[count].tolist(), PROMPT, output, one)
        for count, token_id in enumerate(draft):
            if np.isneginf(together[count, token_id]):
                break  # it cannot be committed
            assert (shaper.shape(logits[count : count + 1], ()) == together[count]).all()
            shaper.advance(token_id)


@pytest.mark.parametrize("setting", SETTINGS)
def test_rejected_drafts_leave_no_trace_and_input_is_left_alone(setting):
    """Known elsewhere as counts kept of rejected drafts, and of accepted ones twice."""
    shaper, untouched = make_shaper(SETTINGS[setting]), make_shaper(SETTINGS[setting])
    for one, token_id in product((shaper, untouched), (2, 0)):
        one.advance(token_id)
    drafts = [(2, 0), (0, 3), (2, 1, 2), (3,), ()]
    for draft in drafts:
        logits = rows(TARGET, (*PROMPT, 2, 0), draft)
        logits.setflags(write=False)
        shaper.shape(logits, draft)
    for draft in drafts:
        logits = rows(TARGET, (*PROMPT, 2, 0), draft)
        assert (shaper.shape(logits, draft) == untouched.shape(logits, draft)).all()


@pytest.mark.parametrize(("settings", "is_same"), [({}, True), ({"min_tokens": 2}, False), ({"top_k": 2}, True)])
def test_nothing_is_copied_where_there_is_nothing_to_do(settings, is_same):
    shaper = make_shaper(params(**settings))
    logits = rows(TARGET, PROMPT, (2,))
    assert (shaper.shape(logits, (2,)) is logits) == is_same
    for token_id in (2, 2):
        shaper.advance(token_id)
    assert shaper.shape(logits, (2,)) is logits


def test_reference_and_laws_are_not_vacuous():
    """Each setting changes the law of an answer, and laws depend on what was drafted."""
    plain = wanted_law(SETTINGS["none"], 3)
    for setting, one in SETTINGS.items():
        assert (float(total_variation(wanted_law(one, 3), plain)) > 0.01) == (setting != "none"), setting
    one = SETTINGS["frequency_penalty"]
    assert (reference_law(one)((*PROMPT, 2, 2)) != reference_law(SETTINGS["none"])((*PROMPT, 2, 2))).any()


# --- faults known from other engines


def test_frequency_penalty_counts_every_token_of_the_draft():
    """sglang#33643: the penalty came out divided by the length of the draft."""
    one = params(temperature=0.0, frequency_penalty=0.2)
    shaped = make_shaper(one).shape(np.array([[2.0, 1.9, 0, 0]] * 4, dtype=np.float32), (0, 0, 0))
    assert greedy_token_ids(shaped).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("penalty", ["frequency_penalty", "presence_penalty"])
@pytest.mark.parametrize("sign", [1, -1])
def test_penalties_of_two_change_greedy_text(penalty, sign):
    """vllm#18902: no effect and no warning with speculation on."""
    one = params(temperature=0.0, **{penalty: 2.0 * sign})
    logits = np.array([[1.0, 0.5, 0, 0], [1.0, 1.25, 0, 0]], dtype=np.float32)
    expected = [0, 1] if sign > 0 else [0, 0]
    assert greedy_token_ids(make_shaper(one).shape(logits, (0,))).tolist() == expected


def test_min_tokens_counts_tokens_not_rounds():
    """sglang#33643: with drafts of five, the end was masked five times too long."""
    shaper = make_shaper(params(min_tokens=6, stop_token_ids=(3,)))
    logits = np.zeros((6, VOCAB_SIZE), dtype=np.float32)
    draft = (0, 0, 0, 0, 0)
    assert np.isneginf(shaper.shape(logits, draft)[:, [1, 3]]).all()
    for token_id in (*draft, 2):
        shaper.advance(token_id)
    assert np.isfinite(shaper.shape(logits, draft)).all(), "token 7 may be the end"


def test_min_p_at_each_position_is_the_mask_of_the_penalised_law():
    """vllm#42744: applied to bonus tokens only."""
    one = params(min_p=0.2, frequency_penalty=2.0)
    logits = np.array([[2.0, 1.0, 0.0, -1.0]] * 3, dtype=np.float32)
    kept = target_probs(make_shaper(one).shape(logits, (0, 1)), one) > 0
    assert kept.tolist() == [[True, True, False, False], [True, True, True, False], [True] * 4]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("setting", ["allowed_token_ids", "bad_words", "response_format", "frequency_penalty"])
def test_no_mask_hides_what_is_not_a_number(setting, bad):
    """vllm#53029: a plausible token came out of a row of NaN once part of it was masked."""
    logits = rows(TARGET, PROMPT, (2,))
    logits[1, [1, 3]] = bad
    with pytest.raises(NumericalError, match="row 1 of the logits"):
        make_shaper(SETTINGS[setting]).shape(logits, (2,))


def test_a_row_that_the_settings_leave_nothing_of_is_an_error_and_no_token():
    one = params(allowed_token_ids=(2, 3), bad_words=("cc", "cd"))
    shaped = make_shaper(one).shape(rows(TARGET, PROMPT, (2,)), (2,))
    with pytest.raises(NumericalError, match=r"row 1 .*every token excluded"):
        target_probs(shaped, one)


def test_a_bias_of_minus_100_keeps_a_token_out_at_every_position():
    """vllm#38202."""
    one = params(logit_bias={2: -100, 1: 5})
    probs = target_probs(make_shaper(one).shape(rows(TARGET, PROMPT, (1, 0)), (1, 0)), one)
    assert (probs[:, 2] < 1e-40).all()
    assert (probs[:, 1] > 0.8).all()
