"""How a plan's predictions are held against what running it gave."""

from dataclasses import replace

import pytest
from plans import made_up

from benchmarks.planning import ALL, PREDICTIONS, by_best, table, within


@pytest.fixture
def plan():
    """Return a plan of 10, 20 and 15 tokens a second, as it was run: in all and on code at these, on chat at others."""
    rates = [(10.0, 10.0), (25.0, 20.0), (None, None)]
    choices = [
        one
        if rate is None
        else replace(
            one,
            measured_tokens_per_s=rate,
            measured_families={"code": rate, "chat": own},
            repriced_tokens_per_s=rate,
            repriced_families={"code": 1.2 * rate, "chat": own},
        )
        for one, (rate, own) in zip(made_up().choices, rates, strict=True)
    ]
    return made_up(choices=tuple(choices))


def test_ratios_are_predicted_by_measured_of_what_was_run(plan):
    found = {basis: table(plan, predict) for basis, predict in PREDICTIONS.items()}
    assert found["tokens per second"] == {
        "plain": {ALL: 1.0, "code": 1.0, "chat": 1.0},
        "draft, 4": {ALL: 0.8, "code": 0.8, "chat": 1.0},
    }
    assert found["tokens per second, at the costs of the moment"]["draft, 4"] == {ALL: 1.0, "code": 1.2, "chat": 1.0}
    assert found["speedup, at the costs of the moment"]["draft, 4"] == {ALL: 1.0, "code": 1.0, "chat": 1.0}


def test_those_beyond_a_limit_are_named(plan):
    found = within(plan, PREDICTIONS["tokens per second"], 0.1)
    assert found["over_all"] == {"of": 2, "num": 1}
    assert found["by_family"] == {
        "of": 4,
        "num": 3,
        "beyond": [{"choice": "draft, 4", "family": "code", "ratio": 0.8}],
    }


def test_what_is_recommended_is_held_against_the_best(plan):
    assert by_best(plan, 1, ALL) == 1.0
    assert by_best(plan, 0, "chat") == 0.5
    assert by_best(plan, 2, "code") == 0.0
