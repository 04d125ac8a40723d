"""Passes are timed until the times agree, and priced by what was timed."""

import pytest

from outrider.backends.timing import PassShape
from outrider.backends.toy import HashLM, ToyBackend
from outrider.planner.passes import MAX_SPREAD, Timed, fitted, shapes_of, time_passes, typical_spread


class Timer(ToyBackend):
    """Takes times of a script, over and over, by its own clock."""

    def __init__(self, script):
        super().__init__(HashLM(3))
        self.now, self.script, self.passes = 0.0, script, 0

    def forward(self, batch):
        self.now += self.script[self.passes % len(self.script)]
        self.passes += 1
        return super().forward(batch)


def timed(rows, seconds, context=0, sequences=1):
    return Timed(PassShape(rows, context, sequences), seconds, seconds, seconds, 5)


def test_a_quiet_machine_is_measured_once():
    backend = Timer([1.0])
    [one] = time_passes(backend, [PassShape(1)], lambda: backend.now)
    assert (one.seconds, one.low, one.high, one.count, one.spread) == (1.0, 1.0, 1.0, 5, 0.0)


def test_a_noisy_machine_is_measured_again_and_its_spread_is_told():
    backend = Timer([1.0, 2.0, 3.0])
    [one] = time_passes(backend, [PassShape(1)], lambda: backend.now)
    assert one.count == 20
    assert one.spread > MAX_SPREAD
    assert typical_spread([one]) == one.spread


def test_noise_that_passes_is_outvoted():
    backend = Timer([1.0, 9.0, 1.0, 9.0, 1.0, 9.0, *[1.0] * 300])
    [one] = time_passes(backend, [PassShape(1)], lambda: backend.now)
    assert (one.seconds, one.count) == (1.0, 15)


def test_what_does_not_fit_the_context_is_not_timed():
    shapes = shapes_of((1, 8, 32), (100, 1000), 128, (1, 2))
    assert max(shape.rows + shape.context for shape in shapes) <= 128
    assert PassShape(8, 100) in shapes
    assert PassShape(4, 0, 2) in shapes
    assert len(set(shapes)) == len(shapes)


def test_a_curve_gives_back_what_it_was_made_of():
    cost = lambda rows, context: 0.010 + 0.001 * rows + 1e-6 * context + 2e-7 * rows * context  # noqa: E731
    points = [timed(rows, cost(rows, 0)) for rows in (1, 4, 16, 64)]
    deep = [timed(rows, cost(rows, context), context) for rows in (1, 8, 16) for context in (500, 1000)]
    costs = fitted([*points, *deep, timed(1, 9.0, sequences=4)])
    for rows, context in ((1, 0), (2, 300), (10, 1000), (64, 50)):
        assert costs.at(rows, context) == pytest.approx(cost(rows, context))


def test_noise_cannot_make_rows_or_context_cost_less_than_nothing():
    costs = fitted([timed(1, 0.02), timed(4, 0.01), timed(8, 0.03), timed(1, 0.01, 500), timed(8, 0.02, 500)])
    assert costs.at(1) < costs.at(2) < costs.at(4) < costs.at(8)
    assert costs.at(8, 1000) >= costs.at(8)
