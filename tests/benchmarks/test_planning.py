"""How a plan's predictions are held against what running it gave."""

from dataclasses import replace

import pytest
from plans import made_up

from benchmarks.planning import by_best, family_by_best, ratio_of_all, ratios, within


@pytest.fixture
def plan():
    rates = [(10.0, 10.0), (25.0, 20.0), (20.0, 16.0)]  # in all; both families alike
    choices = [
        replace(one, measured_tokens_per_s=rate, measured_families={"code": rate, "chat": own})
        for one, (rate, own) in zip(made_up().choices, rates, strict=True)
    ]
    return made_up(choices=tuple(choices))


def test_ratios_are_predicted_by_measured(plan):
    assert ratios(plan.choices[1]) == {"code": 0.8, "chat": 1.0}
    assert ratio_of_all(plan.choices[1]) == 0.8
    found = within(plan, 0.1)
    assert (found["num"], found["of"]) == (4, 6)
    assert [(one["choice"], one["family"]) for one in found["beyond"]] == [("draft, 4", "code"), ("draft, 8", "code")]


def test_what_is_recommended_is_held_against_the_best(plan):
    assert by_best(plan, 2, lambda one: one.measured_tokens_per_s) == 0.8
    assert family_by_best(plan, "chat", 0) == 0.5
