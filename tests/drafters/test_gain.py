"""What a draft is worth: the optimum, worked out by hand and by brute force."""

from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.gain import Odds, PassCosts, Rate, choose_length
from outrider.errors import UsageError

FLAT = PassCosts(((1, 1.0), (2, 1.0)))
LINEAR = PassCosts(((1, 1.0), (2, 1.1)))


def test_costs_are_linear_between_measured_points_and_beyond_them():
    costs = PassCosts(((1, 1.0), (4, 1.3), (8, 2.1)))
    assert [costs.at(rows) for rows in (1, 2, 4, 6, 8, 12)] == pytest.approx([1.0, 1.1, 1.3, 1.7, 2.1, 2.9])


def test_rows_of_all_sequences_share_the_matrices_and_each_pays_for_its_context():
    costs = PassCosts(((1, 2.0), (5, 6.0)), per_context=0.1, per_row_context=0.01)
    assert costs.of([(2, 10), (3, 100)]) == pytest.approx(6.0 + 0.12 * 10 + 0.13 * 100)
    assert costs.of([(2, 10), (4, 100)]) - costs.of([(2, 10), (3, 100)]) == pytest.approx(1.0 + 0.01 * 100)
    assert costs.in_units_of(2.0).of([(2, 10), (3, 100)]) == pytest.approx(costs.of([(2, 10), (3, 100)]) / 2)


def test_a_text_is_read_in_pieces():
    costs = PassCosts(((1, 1.0), (4, 2.5)), per_row_context=0.1)
    assert costs.reading(9, context=3, piece=4) == pytest.approx(costs.at(4, 3) + costs.at(4, 7) + costs.at(1, 11))
    assert costs.reading(0) == 0


@pytest.mark.parametrize(
    "points", [(), ((1, 1.0),), ((2, 1.0), (3, 1.0)), ((1, 1.0), (1, 2.0)), ((1, 1.0), (2, 0.0)), ((1, 1), (2, 1e9))]
)
def test_costs_that_were_not_measured_are_refused(points):
    with pytest.raises(UsageError, match="pass costs are"):
        PassCosts(points)
    with pytest.raises(UsageError, match="for a token in the cache"):
        PassCosts(per_context=float("nan"))


def test_a_free_token_is_always_worth_it_and_a_hopeless_one_never():
    assert choose_length([0.5, 0.1, 0.01], FLAT, rate=3.0) == (3, pytest.approx(0.5 + 0.05 + 0.0005))
    assert choose_length([0.1, 0.9], LINEAR, rate=3.0) == (0, 0.0)


def test_a_token_is_added_while_its_survival_exceeds_what_it_costs():
    # Survivals .8, .64, .512, ... against 2 * (0.1 + 0.2): the second is the last above 0.6.
    assert choose_length([0.8] * 6, LINEAR, rate=2.0, token_cost=0.2)[0] == 2


def test_tokens_before_are_paid_for():
    costs = PassCosts(((1, 1.0), (4, 1.0), (5, 9.0)))
    assert choose_length([0.9] * 4, costs, rate=1.0)[0] == 3
    assert choose_length([0.9] * 4, costs, rate=1.0, num_before=2)[0] == 1


@given(st.lists(st.floats(0, 1), max_size=8), st.floats(1, 4), st.floats(0, 0.5))
def test_no_other_length_gains_more(chances, rate, token_cost):
    costs = PassCosts(((1, 1.0), (3, 1.02), (5, 1.9), (9, 2.0)))
    length, gain = choose_length(chances, costs, rate, token_cost=token_cost)
    survivals = list(accumulate(chances, mul))
    gains = [sum(survivals[:n]) - rate * (costs.at(1 + n) - 1 + token_cost * n) for n in range(len(chances) + 1)]
    assert gain == pytest.approx(max(gains), abs=1e-9)
    assert gains[length] == pytest.approx(gain, abs=1e-9)


def test_odds_begin_with_the_prior_and_end_with_the_evidence():
    odds = Odds(lambda kind: 0.25, weight=4)
    kind = ("a", 0, 0)
    assert odds.chance(kind) == 0.25
    odds.observe(kind, came_true=True)
    assert odds.chance(kind) == pytest.approx(2 / 5)
    for _ in range(996):
        odds.observe(kind, came_true=True)
    assert odds.chance(kind) > 0.99
    assert odds.chance(("b", 0, 0)) == 0.25


def test_a_rate_follows_the_rounds_and_never_falls_below_plain_decoding():
    rate = Rate()
    for _ in range(100):
        rate.observe(4, 2.0)
    assert rate.value == pytest.approx(2.0)
    for _ in range(100):
        rate.observe(1, 3.0)
    assert rate.value == 1.0
