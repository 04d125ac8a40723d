"""Curves are bent to passes that were seen: by one factor for the first row, by one for what comes on top."""

import pytest

from outrider.backends.metered import Pass
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.planner.live import bent, live_costs, slower

CURVE = PassCosts(((1, 1.0), (4, 1.3), (64, 8.0), (256, 30.0)), 1e-4, 1e-5)


def seen(whole, added, shapes=((1, 0), (1, 500), (4, 100), (9, 900))):
    """Return passes on a machine that is slower by two factors."""
    return [Pass("m", ((rows, length),), whole + added * (CURVE.at(rows, length) - 1)) for rows, length in shapes]


@pytest.mark.parametrize(("whole", "added"), [(1.0, 1.0), (1.5, 1.1), (0.8, 2.0)])
def test_both_factors_are_found(whole, added):
    found = bent(CURVE, seen(whole, added))
    for rows, length in ((1, 0), (2, 50), (16, 1000), (64, 0)):
        assert found.at(rows, length) == pytest.approx(whole + added * (CURVE.at(rows, length) - 1))


def test_passes_together_take_what_the_bent_curve_says():
    passes = [*seen(1.2, 1.0), Pass("m", ((1, 10),), 1.7), Pass("m", ((6, 10),), 1.1), Pass("m", ((2, 10),), 2.0)]
    found = bent(CURVE, passes)
    assert sum(found.at(one.rows, one.length) for one in passes) == pytest.approx(sum(one.seconds for one in passes))
    assert slower(found, passes) == pytest.approx(1.0)


def test_passes_of_one_shape_give_one_factor():
    assert bent(CURVE, [Pass("m", ((1, 0),), 1.5)] * 3).at(16) == pytest.approx(1.5 * CURVE.at(16))


def test_reading_prompts_has_a_factor_of_its_own():
    found = bent(CURVE, [*seen(1.5, 1.5), Pass("m", ((256, 0),), 60.0)])
    assert (found.at(1), found.at(256)) == pytest.approx((1.5, 60.0))
    assert slower(CURVE, [*seen(1.5, 1.5), Pass("m", ((256, 0),), 60.0)]) == pytest.approx(1.5)


def test_each_model_has_its_own_and_one_that_was_not_seen_keeps_its_costs():
    found = live_costs(Costs(CURVE, {"d": CURVE, "m": CURVE}), "t", [Pass("t", ((1, 0),), 3.0), *seen(2.0, 2.0)])
    assert found.target.at(1) == pytest.approx(3.0)
    assert found.drafts["m"].at(1) == pytest.approx(2.0)
    assert found.drafts["d"] == CURVE
    assert slower(CURVE, []) == 1.0
