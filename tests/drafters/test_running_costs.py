"""Costs follow what passes take, slowly enough for outliers and quickly enough for a machine that changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.backends.metered import Pass
from outrider.drafters.gain import PassCosts
from outrider.drafters.running_costs import RunningCosts

MEASURED = PassCosts(((1, 1.0), (2, 1.05), (8, 1.2), (256, 9.0)), per_context=1e-4, per_row_context=1e-5)


def timed(rows, slower=1.0, context=0, num_logits=None):
    seconds = slower * MEASURED.at(rows, context)
    return Pass("m", ((rows, context),), seconds, rows if num_logits is None else num_logits)


def after(*passes):
    running = RunningCosts(MEASURED, list(passes))
    running.update()
    return running.now


def test_without_passes_costs_are_as_measured():
    for running in (RunningCosts(MEASURED), RunningCosts(MEASURED, [])):
        assert not running.update()
        assert running.now == MEASURED


def test_costs_become_what_passes_take():
    now = after(*[timed(1, 1.5, context=300)] * 9, *[timed(8, 1.4, context=300)] * 9)
    assert (now.at(1), now.at(8)) == pytest.approx((1.5, 1.68))
    assert now.per_context == pytest.approx(1.5e-4)


def test_a_few_outliers_change_nothing_and_five_passes_in_a_row_are_believed():
    steady = [timed(1)] * 9
    assert after(*steady, *[timed(1, 30.0)] * 4).at(1) == 1.0
    assert after(*steady, *[timed(1, 1.4)] * 5).at(1) == pytest.approx(1.4)


class Rounds:
    """A model whose passes are noted, one in a round."""

    def __init__(self, guide=None):
        self.passes = []
        self.costs = RunningCosts(MEASURED, self.passes, guide)

    def make(self, *passes):
        for one in passes:
            self.passes.append(one)
            self.costs.update()
        return self.costs.now


def test_what_is_not_seen_becomes_as_much_cheaper_as_what_is_but_not_dearer():
    assert Rounds().make(*[timed(1, 0.7)] * 9).at(8) == pytest.approx(1.2 * 0.7)
    assert Rounds().make(*[timed(8, 0.7)] * 9).at(1) == pytest.approx(0.7)
    assert Rounds().make(*[timed(1, 1.1)] * 9).at(8) == pytest.approx(1.2)
    assert Rounds().make(*[timed(1, 2.0)] * 9).at(8) == pytest.approx(2.0 * 1.07)  # no less than one row


def test_what_was_seen_stays_until_the_machine_changes_however_long_ago():
    model = Rounds()
    model.make(*[timed(1, 0.7), timed(8, 1.0)] * 9)
    assert model.make(*[timed(1, 0.7)] * 200).at(8) == pytest.approx(1.2)
    assert model.make(*[timed(1, 0.9)] * 9).at(8) == pytest.approx(1.2)
    assert model.make(*[timed(1, 0.35)] * 9).at(8) == pytest.approx(0.6)


def test_what_is_seen_again_counts_from_what_was_supposed():
    model = Rounds()
    model.make(*[timed(8, 1.0)] * 9)
    assert model.make(*[timed(1, 0.5)] * 80, timed(8, 0.9)).at(8) == pytest.approx(0.6)
    assert model.make(*[timed(8, 0.9)] * 2).at(8) == pytest.approx(1.2 * 0.7)  # of three and three
    assert model.make(timed(8, 0.9)).at(8) == pytest.approx(1.2 * 0.9)


def test_an_idle_draft_model_becomes_as_much_cheaper_as_the_target():
    target = Rounds()
    draft = Rounds(target.costs)
    assert target.make(*[timed(1, 0.7)] * 9).at(1) == pytest.approx(draft.costs.now.at(1)) == pytest.approx(0.7)
    draft.make(*[timed(1, 0.9)] * 9)
    for _ in range(100):  # idle rounds
        target.make(timed(1, 0.7))
        draft.costs.update()
    assert draft.costs.now.at(1) == pytest.approx(0.9)
    assert target.make(*[timed(1, 0.35)] * 9).at(1) == pytest.approx(0.35)
    assert draft.costs.now.at(1) == pytest.approx(0.45)


def test_passes_of_several_sequences_are_foreseen_as_a_whole():
    batch = ((1, 100), (3, 900), (4, 0))
    assert after(*[Pass("m", batch, 1.1 * MEASURED.of(batch), 8)] * 9).at(8) == pytest.approx(1.32)


@pytest.mark.parametrize(
    "one",
    [
        timed(1, 0.0),
        timed(1, -1.0),
        timed(1, float("inf")),
        timed(1, float("nan")),
        timed(9, 7.0, num_logits=2),  # others' prompts are read beside
        timed(100, 7.0, num_logits=100),
        timed(300, 7.0, num_logits=0),  # more than was measured
    ],
)
def test_passes_of_another_kind_do_not_count(one):
    assert after(*[one] * 20) == MEASURED


def test_reading_a_piece_of_a_prompt_counts():
    assert after(*[timed(200, 2.0, num_logits=1)] * 9).at(256) == pytest.approx(18.0)


@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 5, 8, 20, 256]), st.floats(1e-300, 1e300)), max_size=60))
def test_whatever_passes_take_costs_make_sense_and_the_same_passes_make_the_same(passes):
    noted = [Pass("m", ((rows, 7),), seconds, rows if rows < 65 else 0) for rows, seconds in passes]
    now = after(*noted)
    costs = [cost for _, cost in now.points]
    assert costs == sorted(costs)
    assert now == after(*noted)
