"""From times to costs: what grows with rows, what with the context."""

import pytest

from outrider.backends.toy import HashLM, ToyBackend
from outrider.engine.costs import measure


class Timed(ToyBackend):
    """Takes as long as a formula says for the rows and the context of a pass, by its own clock."""

    def __init__(self, seconds):
        super().__init__(HashLM(3, seed=1))
        self.now, self.seconds = 0.0, seconds

    def forward(self, batch):
        (rows,) = batch
        self.now += self.seconds(len(rows.token_ids), self.length(rows.sequence_id))
        return super().forward(batch)


def measured(seconds, **options):
    backend = Timed(seconds)
    return measure(backend, lambda: backend.now, **options)


def test_attention_is_told_apart_for_a_sequence_and_for_each_row():
    def seconds(rows, context):
        return 2.0 + 0.1 * rows + (0.003 + 0.002 * rows) * context

    costs = measured(seconds, rows=(1, 4, 256), context=100)
    for rows, context in [(1, 0), (4, 50), (256, 10), (2, 1000)]:
        assert costs.at(rows, context) == pytest.approx(seconds(rows, context))


def test_costs_never_fall_with_more_rows_and_no_row_is_for_nothing():
    times = {1: 2.0, 4: 1.9, 8: 3.0, 16: 2.5, 32: 8.0}
    costs = measured(lambda rows, context: times[rows], rows=tuple(times))
    assert [costs.at(rows) for rows in times] == pytest.approx([2.0, 2.06, 3.0, 3.0, 8.0])
    assert measured(lambda rows, context: 0.0, rows=(1, 32)).at(32) == pytest.approx(1.31)
    noisy = measured(lambda rows, context: 1.0 if context else 2.0, context=100)
    assert (noisy.per_context, noisy.per_row_context) == (0.0, 0.0)
