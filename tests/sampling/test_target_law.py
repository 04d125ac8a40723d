"""Log probabilities are those of the law that tokens are chosen from."""

import math

import numpy as np
import pytest
from processed import Letters

from outrider._core import Law
from outrider.errors import NumericalError
from outrider.sampling import LawShaper, SamplingParams, TargetLaw, Vocabulary, compile_params
from outrider.sampling.target_law import plain_law, token_logprobs
from outrider.types import Draft

LOGITS = np.log(np.array([[1, 4, 4, 1], [7, 1, 1, 1]], dtype=np.float32))


def make_law(logits=LOGITS, draft_ids=(2,), **settings):
    shaper = LawShaper(compile_params(SamplingParams(**settings), Vocabulary(Letters(), 4)), (0,))
    return TargetLaw(logits.copy(), shaper, Draft(draft_ids))


def test_logprobs_are_those_of_the_law_with_its_temperature_and_limits():
    law = make_law(temperature=0.5, top_k=3, logprobs=2)
    one = law.logprobs(0, 2)
    assert one.logprob == pytest.approx(math.log(16 / 33))
    assert [token_id for token_id, _ in one.top] == [1, 2]
    assert one.top[1][1] == one.logprob == math.log(law.probs[0][2])
    assert law.logprobs(1, 0).logprob == math.log(law.probs[1][0])


def test_greedy_logprobs_are_at_temperature_one_not_of_the_certainty():
    """llama.cpp#27972: 0.0 for every token."""
    one = make_law(top_k=1, logprobs=3).logprobs(0, 1)
    assert one.logprob == pytest.approx(math.log(0.4))
    assert [token_id for token_id, _ in one.top] == [1, 2, 0]


def test_nobody_asked():
    assert make_law().logprobs(0, 1) is None


@pytest.mark.parametrize(("num_top", "expected"), [(0, []), (1, [1]), (2, [1, 2]), (3, [1, 2, 0]), (9, [1, 2, 0])])
def test_top_is_the_likeliest_lowest_id_first_and_nothing_impossible(num_top, expected):
    law = Law.listed(np.array([0.2, 0.4, 0.4, 0.0]))
    one = token_logprobs(law, 3, num_top)
    assert one.logprob == -math.inf
    assert [token_id for token_id, _ in one.top] == expected
    assert token_logprobs(law, 0, num_top).logprob == math.log(0.2)


def test_the_plain_law_is_a_softmax():
    assert np.asarray(plain_law(LOGITS[0])) == pytest.approx([0.1, 0.4, 0.4, 0.1])


def test_a_row_is_worked_out_when_it_is_asked_for_and_once():
    asked = []

    class Spy(LawShaper):
        def shape(self, logits, draft_ids, *, out=None):
            asked.append(tuple(draft_ids))
            return super().shape(logits, draft_ids, out=out)

    compiled = compile_params(SamplingParams(temperature=1.0, logprobs=1), Vocabulary(Letters(), 4))
    law = TargetLaw(LOGITS, Spy(compiled, (0,)), Draft((2,)))
    assert law.probs.shape == (2, 4)
    assert asked == []
    assert law.probs[1] is law.probs[1]
    assert law.token_ids[1] == 0
    assert law.logprobs(1, 0) is not None
    assert asked == [(2,)]
    with pytest.raises(IndexError):
        law.probs[2]


@pytest.mark.parametrize("settings", [{}, {"bad_words": ("ca", "cc", "cd"), "allowed_token_ids": (0, 2, 3)}])
def test_a_row_without_a_law_is_an_error_where_it_is_asked_for(settings):
    logits = LOGITS.copy()
    if not settings:
        logits[1, 3] = np.nan
    law = make_law(logits, **settings)
    assert law.token_ids[0] == 2 if settings else 1
    for _ in range(2):
        with pytest.raises(NumericalError):
            law.token_ids[1]
        with pytest.raises(NumericalError):
            law.probs[1]
