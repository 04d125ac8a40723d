"""Predictions worked out by hand."""

import numpy as np
import pytest

from outrider.backends.metered import Pass
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.planner.meter import Round
from outrider.planner.predict import (
    Answered,
    acceptance_by_position,
    answer_seconds,
    ratio,
    round_seconds,
    shares,
    speed,
    speed_and_speedup,
)

# A pass of the target takes 10 s and 1 s a row, one of the draft 1 s and 1 s a row.
COSTS = Costs(PassCosts(((1, 11.0), (2, 12.0))), {"draft": PassCosts(((1, 2.0), (2, 3.0)))})


def drafted(num_draft_tokens, num_accepted, *, num_emitted=None, length=100):
    passes = tuple(Pass("draft", ((1, length + level),), 9.9) for level in range(num_draft_tokens))
    num_emitted = num_accepted + 1 if num_emitted is None else num_emitted
    return Round(length, num_draft_tokens, num_accepted, num_emitted, passes, other_s=0.5)


def answered(*rounds, name="1", family=None):
    return Answered(name, family, rounds)


PLAIN = answered(*[Round(100, 0, 0, 1, (), 0.0)] * 4)


def rng():
    return np.random.default_rng(0)


def test_a_round_is_its_passes_and_the_rest():
    assert round_seconds([drafted(3, 1)], COSTS) == pytest.approx(14 + 3 * 2 + 0.5)


def test_rounds_side_by_side_share_passes():
    both = round_seconds([drafted(3, 1), drafted(1, 1)], COSTS)
    assert both == pytest.approx(10 + 6 + (3 + 2 + 2) + 1.0)


def test_speed_is_tokens_by_the_time_they_take():
    answer = answered(drafted(3, 3), drafted(3, 0), drafted(0, 0))
    assert answer.num_tokens == 6
    assert answer_seconds([answer], COSTS).tolist() == pytest.approx([20.5 + 20.5 + 11.5])
    assert speed([answer], COSTS) == pytest.approx(6 / 52.5)
    assert speed([], COSTS) == 0.0
    assert speed([PLAIN, PLAIN], COSTS, 2) == pytest.approx(2 / 12)


def test_speedup_compares_the_same_prompts_and_few_prompts_have_no_interval():
    fast, slow = answered(drafted(3, 3)), answered(*[drafted(3, 0)] * 4)
    rate, gain = speed_and_speedup([fast], [PLAIN], COSTS, rng())
    assert (rate.value, gain.value) == pytest.approx((4 / 20.5, 44 / 20.5))
    _, both = speed_and_speedup([fast, slow], [PLAIN, PLAIN], COSTS, rng())
    assert both.value == pytest.approx(88 / (20.5 * 5))
    five = speed_and_speedup([fast, slow, slow, slow, slow], [PLAIN] * 5, COSTS, rng())
    assert {one.low for one in (rate, gain, both, *five)} == {None}
    _, alike = speed_and_speedup([fast] * 6, [PLAIN] * 6, COSTS, rng())
    assert (alike.low, alike.high) == (pytest.approx(44 / 20.5), pytest.approx(44 / 20.5))


def test_an_interval_holds_the_truth_nearly_as_often_as_it_says_from_few_prompts_too():
    """Of six, 0.92 of the time; plain quantiles hold it 0.84 of the time."""
    draws, num_prompts, held, held_narrowly = rng(), 6, 0, 0
    for _ in range(400):
        own, plain = draws.lognormal(0, 0.35, num_prompts), np.ones(num_prompts)
        found = ratio(own, plain, draws)
        resampled = draws.choice(own, (500, num_prompts)).mean(axis=1)
        low, high = np.quantile(resampled, [0.025, 0.975])
        truth = np.exp(0.35**2 / 2)
        held += found.low <= truth <= found.high
        held_narrowly += low <= truth <= high
    assert held > 0.9 * 400 > held_narrowly


def test_acceptance_counts_what_was_tested_only():
    answers = [
        answered(drafted(3, 3), drafted(3, 1), drafted(1, 0)),
        answered(drafted(3, 2, num_emitted=2)),  # the answer ended within the draft
    ]
    places = acceptance_by_position(answers, 4, rng())
    assert [(round(one.value, 6), tested) for one, tested in places] == [(0.75, 4), (0.666667, 3), (1.0, 1)]
    assert acceptance_by_position([PLAIN], 3, rng()) == []


def test_shares_add_up():
    parts = shares([answered(drafted(3, 1))], COSTS)
    assert parts == pytest.approx({"target": 14 / 20.5, "drafts": 6 / 20.5, "other": 0.5 / 20.5})


def test_a_mixture_of_easy_and_hard_prompts_is_worth_more_than_its_mean():
    """Acceptance of .5 and .9, half and half, gives 3.3 tokens a round of five; one of .7 gives 2.9."""
    rounds = {0.5: [], 0.9: []}
    for prob, own in rounds.items():
        for count in range(6):
            share = prob**count * (1 - prob if count < 5 else 1)
            own.extend([drafted(5, count)] * round(100_000 * share))
    both = [answered(*own) for own in rounds.values()]
    tokens = sum(one.num_tokens for one in both) / sum(len(one.rounds) for one in both)
    assert tokens == pytest.approx(3.327, abs=1e-3)
