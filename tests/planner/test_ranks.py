"""Acceptance by rank, against what the laws say."""

import numpy as np
import pytest
from toy_llm import toy_model

from outrider.planner.meter import Prompted, Setting, record
from outrider.planner.ranks import NUM_RANKS, ranks, ranks_of_draws
from outrider.sampling import SamplingParams, Vocabulary, compile_params

TARGET = toy_model(1, is_sharp=True)
PROMPT = Prompted("1", None, tuple(TARGET.tokenizer.encode("abc")))


def setting(**params):
    vocabulary = Vocabulary(TARGET.tokenizer, TARGET.vocab_size)
    return Setting(TARGET, compile_params(SamplingParams(max_tokens=12, **params), vocabulary), lambda: 0.0)


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0}])
def test_a_draft_that_is_the_target_is_right_at_once(params):
    how = setting(**params)
    found = ranks(how, record(how, PROMPT, 3)[0], toy_model(1, is_sharp=True))
    assert len(found) == 12
    assert all(one.by_rank[0] == pytest.approx(1) and one.overlap == pytest.approx(1) for one in found)
    assert all(sum(one.by_rank[1:]) == pytest.approx(0) for one in found)


def test_greedily_a_rank_is_right_or_not_by_what_the_target_said():
    how = setting()
    recording = record(how, PROMPT, 3)[0]
    draft = toy_model(2)
    for place, one in enumerate(ranks(how, recording, draft)):
        weights = draft.backend._model.weights([*recording.prompt_ids, *recording.answer_ids[:place]])
        order = np.argsort(-np.array(weights[: TARGET.vocab_size]), kind="stable")[:NUM_RANKS]
        assert one.by_rank == tuple(float(token_id == recording.answer_ids[place]) for token_id in order)


def test_sampled_the_overlap_is_the_sum_of_the_smaller_probabilities():
    how = setting(temperature=1.0)
    recording = record(how, PROMPT, 3)[0]
    draft = toy_model(2, is_sharp=True)
    for place, one in enumerate(ranks(how, recording, draft)):
        weights = np.array(draft.backend._model.weights([*recording.prompt_ids, *recording.answer_ids[:place]]))
        law = weights / weights.sum()
        assert one.overlap == pytest.approx(np.minimum(np.asarray(recording.laws[place]), law).sum(), abs=1e-5)


def test_draws_without_replacement_by_hand():
    """Token 0 is accepted 2 of 3 times; what is left of the target's law is all on token 1."""
    target, drafted = np.array([0.4, 0.6, 0.0]), np.array([0.6, 0.2, 0.2])
    chances = ranks_of_draws(target, drafted, [0, 2, 1])
    assert chances == pytest.approx((2 / 3, 0.0, 1 / 3, 0.0))


def test_a_draft_whose_context_is_too_short_tells_what_it_can():
    how = setting()
    recording = record(how, PROMPT, 3)[0]
    assert len(ranks(how, recording, toy_model(1, is_sharp=True, max_length=len(PROMPT.token_ids) + 4))) == 5
