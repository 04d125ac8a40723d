"""The closed forms against their published or exactly recomputed tables, and against enumeration."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import UsageError
from outrider.planner.formulas import (
    acceptance_rate,
    accepted_law,
    best_constant_length,
    best_length,
    block_survivals,
    estimated_acceptance_prob,
    expected_tokens,
    operations_factor,
    oracle_speedup,
    speedup,
    survivals,
    token_survivals,
)

LENGTHS = (1, 2, 3, 4, 5, 7, 10)
TOKENS = {
    0.50: (1.5, 1.75, 1.875, 1.9375, 1.9688, 1.9922, 1.9990),
    0.60: (1.6, 1.96, 2.176, 2.3056, 2.3834, 2.4580, 2.4909),
    0.70: (1.7, 2.19, 2.533, 2.7731, 2.9412, 3.1412, 3.2674),
    0.75: (1.75, 2.3125, 2.7344, 3.0508, 3.2881, 3.5995, 3.8311),
    0.80: (1.8, 2.44, 2.952, 3.3616, 3.6893, 4.1611, 4.5705),
    0.90: (1.9, 2.71, 3.439, 4.0951, 4.6856, 5.6953, 6.8619),
    0.95: (1.95, 2.8525, 3.7099, 4.5244, 5.2982, 6.7316, 8.6240),
}
OPERATIONS = {
    (0.6, 0.0): (1.25, 1.5306, 1.8382, 2.5175, 3.2547, 4.4160),
    (0.7, 0.0): (1.1765, 1.3699, 1.5792, 2.04, 2.5468, 3.3666),
    (0.8, 0.0): (1.1111, 1.2295, 1.3550, 1.6263, 1.9226, 2.4067),
    (0.9, 0.0): (1.0526, 1.1070, 1.1631, 1.2805, 1.4047, 1.6031),
    (0.7, 0.02): (1.1882, 1.3881, 1.6028, 2.0740, 2.5914, 3.4278),
    (0.8, 0.02): (1.1222, 1.2459, 1.3753, 1.6534, 1.9562, 2.4505),
}
# The best length and its speed; Leviathan et al. show it as figure 3 only.
PROBS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
BEST = {
    0.01: "3/1.38 4/1.59 5/1.88 7/2.30 9/2.97 11/3.49 14/4.23 17/5.39 24/7.49 40/12.54",
    0.02: "3/1.34 3/1.53 4/1.79 6/2.17 8/2.76 9/3.20 11/3.82 14/4.75 19/6.37 31/9.95",
    0.04: "2/1.29 3/1.45 3/1.67 4/1.99 6/2.47 7/2.81 9/3.28 11/3.97 15/5.09 23/7.38",
    0.05: "2/1.26 2/1.42 3/1.63 4/1.92 6/2.35 7/2.67 8/3.09 10/3.70 13/4.67 21/6.60",
    0.10: "1/1.18 2/1.30 2/1.46 3/1.67 4/1.98 5/2.19 6/2.47 7/2.85 10/3.43 15/4.48",
    0.15: "1/1.13 1/1.22 2/1.35 2/1.51 3/1.75 4/1.91 5/2.11 6/2.38 8/2.78 12/3.48",
    0.20: "1/1.08 1/1.17 1/1.25 2/1.40 3/1.58 3/1.71 4/1.87 5/2.08 7/2.37 10/2.87",
    0.30: "0/1.00 1/1.08 1/1.15 1/1.23 2/1.37 2/1.45 3/1.55 4/1.69 5/1.87 8/2.18",
    0.50: "0/1.00 0/1.00 0/1.00 1/1.07 1/1.13 1/1.17 2/1.22 2/1.29 3/1.38 5/1.51",
}
BY_PLACE = (0.88, 0.80, 0.72, 0.65, 0.60, 0.55, 0.50, 0.45)


@pytest.mark.parametrize("prob", TOKENS)
def test_tokens_per_round(prob):
    assert [expected_tokens([prob] * k) for k in LENGTHS] == pytest.approx(TOKENS[prob], abs=6e-5)


def test_edges_of_tokens_per_round():
    assert [expected_tokens([prob] * 4) for prob in (0.0, 1.0)] == [1.0, 5.0]
    assert expected_tokens([]) == 1.0


@pytest.mark.parametrize(("prob", "ratio"), OPERATIONS)
def test_operations(prob, ratio):
    found = [operations_factor(prob, k, ratio) for k in (1, 2, 3, 5, 7, 10)]
    assert found == pytest.approx(OPERATIONS[prob, ratio], abs=5e-5)


@pytest.mark.parametrize("cost", BEST)
def test_best_length_and_its_speed(cost):
    found = [best_constant_length(prob, cost) for prob in PROBS]
    assert " ".join(f"{length}/{speed:.2f}" for length, speed in found) == BEST[cost]


def test_a_bound_that_no_length_reaches():
    gains = [100 * (oracle_speedup(prob, 0.02) / best_constant_length(prob, 0.02)[1] - 1) for prob in (0.5, 0.7, 0.9)]
    assert gains == pytest.approx([9.3, 15.5, 33.1], abs=0.05)
    assert oracle_speedup(1.0, 0.0) == float("inf")


def test_chances_by_place_and_what_a_single_mean_makes_of_them():
    assert expected_tokens(BY_PLACE) == pytest.approx(3.8056, abs=5e-5)
    speeds = [speedup(BY_PLACE[:k], 0.05) for k in range(9)]
    assert speeds == pytest.approx([1, 1.7905, 2.3491, 2.6877, 2.8503, 2.8944, 2.8667, 2.8008, 2.7183], abs=5e-5)
    assert [best_length(BY_PLACE, cost)[0] for cost in (0.02, 0.05, 0.1, 0.2)] == [6, 5, 4, 3]
    mean = sum(BY_PLACE) / len(BY_PLACE)
    assert expected_tokens([mean] * 8) == pytest.approx(2.754, abs=5e-4)
    assert expected_tokens([BY_PLACE[0]] * 8) == pytest.approx(5.696, abs=5e-3)


def test_passes_that_are_not_flat_shorten_the_best_draft():
    assert best_length(BY_PLACE, 0.05, lambda rows: 1 if rows <= 4 else 2)[0] == 3


@pytest.mark.parametrize(
    ("prob", "expected"),
    [
        (0.7, (0.7, 0.5110, 0.4433, 0.3882, 0.3059, 0.2267)),
        (0.8, (0.8, 0.6507, 0.5904, 0.5379, 0.4516, 0.3571)),
        (0.9, (0.9, 0.8130, 0.7738, 0.7371, 0.6708, 0.5862)),
    ],
)
def test_acceptance_rate_is_not_the_acceptance_prob_which_counts_give_back(prob, expected):
    assert [acceptance_rate(prob, k) for k in (1, 3, 4, 5, 7, 10)] == pytest.approx(expected, abs=5e-5)
    law = accepted_law(prob, 5)
    assert sum(law) == pytest.approx(1)
    accepted, rejected = (round(1e6 * x) for x in (sum(k * p for k, p in enumerate(law)), 1 - law[5]))
    assert estimated_acceptance_prob(accepted, rejected) == pytest.approx(prob, abs=1e-5)
    assert estimated_acceptance_prob(0, 0) is None


def test_what_70_to_80_percent_is_worth():
    speeds = {prob: best_constant_length(prob, 0.005)[1] for prob in (0.7, 0.8)}
    assert speeds[0.8] / speeds[0.7] == pytest.approx(1.452, abs=5e-4)
    assert accepted_law(0.7, 5)[5] == pytest.approx(0.168, abs=5e-4)
    assert accepted_law(0.8, 5)[5] == pytest.approx(0.328, abs=5e-4)


TOY_TARGET, TOY_DRAFT = (Fraction(1, 3), Fraction(2, 3)), (Fraction(2, 3), Fraction(1, 3))


@pytest.mark.parametrize(
    ("k", "token", "block"),
    [(1, (2, 3), (2, 3)), (2, (10, 9), (11, 9)), (3, (38, 27), (5, 3)), (4, (130, 81), (166, 81))],
)
def test_hindsight_gives_what_both_rules_accept_on_the_published_toy(k, token, block):
    """Sun et al. (2403.10444), lemma 1: laws that ignore their context; every text of the target is enumerated."""
    by_token = by_block = Fraction(0)
    for text in product(range(2), repeat=k):
        share = ratio = Fraction(1)
        ratios = []
        for token_id in text:
            share *= TOY_TARGET[token_id]
            ratio = TOY_DRAFT[token_id] / TOY_TARGET[token_id]
            ratios.append(ratio)
        by_token += share * sum(map(Fraction, token_survivals(ratios)))
        by_block += share * sum(map(Fraction, block_survivals(ratios)))
    assert float(by_token) == pytest.approx(token[0] / token[1])
    assert float(by_block) == pytest.approx(block[0] / block[1])


@given(st.lists(st.floats(0, 4), max_size=6))
def test_the_block_rule_never_accepts_less(ratios):
    pairs = zip(token_survivals(ratios), block_survivals(ratios), strict=True)
    assert all(block >= token - 1e-12 for token, block in pairs)


@pytest.mark.parametrize("prob", [-0.1, 1.1, float("nan")])
def test_what_is_no_chance_is_refused(prob):
    for form in (lambda: survivals([prob]), lambda: accepted_law(prob, 2), lambda: oracle_speedup(prob, 0.1)):
        with pytest.raises(UsageError, match="acceptance_prob is"):
            form()
    with pytest.raises(UsageError, match="no draft is long enough"):
        best_constant_length(1.0, 0.0)
