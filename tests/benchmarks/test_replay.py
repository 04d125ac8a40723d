"""The bound of the replay is the best of all ways through an answer, and what adapts is told by medians."""

import pytest

from benchmarks.adapt import median_answer
from benchmarks.recording import Proposed, Recorded
from benchmarks.replay import hindsight
from outrider.drafters.gain import PassCosts
from outrider.metrics.paired import Answer

COSTS = PassCosts(((1, 1.0), (2, 1.5), (64, 1.5)))
DRAFT = PassCosts(((1, 0.25), (64, 0.25)))


def recorded(answer_ids, proposals):
    drafts = tuple(Proposed(tuple(ids), (0.5,) * len(ids)) for ids in proposals)
    return Recorded("one", "family", (100, 101, 102), tuple(answer_ids), {"model": drafts})


def test_the_bound_drafts_what_is_right_where_it_pays():
    # After 1 the model is right twice, after 4 once, which costs 1.5 for the pass and 0.25 for the token, against 2.
    answer = recorded([1, 2, 3, 4, 5, 6], [[2, 3, 9], [9], [9], [5, 9], [9]])
    total = hindsight(answer, "model", COSTS, DRAFT)
    assert total.tokens == 5
    assert total.cost == pytest.approx((1.5 + 2 * 0.25) + (1.5 + 0.25))


def test_the_bound_is_plain_decoding_where_nothing_is_right():
    total = hindsight(recorded([1, 2, 3, 4], [[9], [9], [9]]), "model", COSTS, DRAFT)
    assert (total.tokens, total.cost) == (3, 3.0)


def test_the_bound_uses_what_is_looked_up():
    repeated = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    total = hindsight(recorded(repeated, [[]] * 14), "model", COSTS, DRAFT)
    assert total.cost < 10


def test_one_disturbed_answer_of_three_does_not_count():
    answers = [Answer((0,) * 11, 5, 0.1, seconds) for seconds in (1.0, 9.0, 1.1, 8.0)]
    assert median_answer(answers[:3]).decode_s == 1.1
    assert median_answer(answers).decode_s == 8.0
