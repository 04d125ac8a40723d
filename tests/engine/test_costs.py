"""From times to costs."""

import pytest

from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import least, measure


class Timed(ToyBackend):
    """Takes as long as a formula says for the rows of a pass, by its own clock."""

    def __init__(self, seconds):
        super().__init__(HashLM(3, seed=1))
        self.now, self.seconds = 0.0, seconds

    def forward(self, batch):
        (rows,) = batch
        self.now += self.seconds(len(rows.token_ids))
        return super().forward(batch)


def measured(seconds, rows):
    backend = Timed(seconds)
    return measure(backend, lambda: backend.now, rows=rows)


def test_costs_never_fall_with_more_rows_and_no_row_is_for_nothing():
    times = {1: 2.0, 4: 1.9, 8: 3.0, 16: 2.5, 32: 8.0}
    costs = measured(lambda rows: times[rows], rows=tuple(times))
    assert [costs.at(rows) for rows in times] == pytest.approx([2.0, 2.06, 3.0, 3.0, 8.0])
    assert measured(lambda rows: 0.0, rows=(1, 32)).at(32) == pytest.approx(1.31)


def test_what_disturbs_one_visit_is_forgotten_at_the_next():
    visits = [PassCosts(((1, 2.0), (8, 9.0))), PassCosts(((1, 3.0), (8, 4.0)))]
    assert least(visits) == PassCosts(((1, 2.0), (8, 4.0)))
    assert least([]) is None


def test_what_a_cache_adds_is_reckoned_from_its_bytes():
    backend = Timed(lambda rows: 2.0)
    costs = measure(backend, lambda: backend.now, rows=(1, 8), cache_share=0.01)
    assert costs.at(1, 100) - costs.at(1) == pytest.approx(2.0)  # as many bytes as the weights, at one row
    assert (costs.at(8, 100) - costs.at(8)) / 2.0 == pytest.approx(0.6 + 8 * 0.4)
    assert least([costs, PassCosts(costs.points, 9.0, 9.0)]) == costs
