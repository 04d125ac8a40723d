"""Passes are timed by the clock that is given, and leave nothing behind; costs are made of the times."""

from outrider.backends.timing import PassShape, pass_seconds
from outrider.backends.toy import HashLM, ToyBackend


class Slow(ToyBackend):
    """Takes a second a row, and ten more for its first passes, by its own clock; remembers its passes."""

    def __init__(self):
        super().__init__(HashLM(3, seed=1))
        self.now, self.passes, self.open = 0.0, [], 0

    def open_sequence(self):
        self.open += 1
        return super().open_sequence()

    def close_sequence(self, sequence_id):
        self.open -= 1
        super().close_sequence(sequence_id)

    def forward(self, batch):
        self.passes.append([(self.length(rows.sequence_id), len(rows.token_ids), rows.num_logits) for rows in batch])
        self.now += sum(len(rows.token_ids) for rows in batch) + (10 if len(self.passes) <= 3 else 0)
        return super().forward(batch)


def test_all_shapes_take_turns_and_the_first_pass_of_all_does_not_count():
    backend = Slow()
    times = pass_seconds(backend, [PassShape(1), PassShape(4)], lambda: backend.now)
    assert times == [(11.0, 1.0, 1.0), (14.0, 4.0, 4.0)]
    assert backend.passes[1:] == [[(0, 1, 1)], [(0, 4, 4)]] * 3
    assert backend.open == 0


def test_caches_are_filled_and_stay_as_long_as_they_are_to_be():
    backend = Slow()
    shapes = [PassShape(2, 300, 2), PassShape(300, reads=True), PassShape(1, 3)]
    times = pass_seconds(backend, shapes, lambda: backend.now)
    assert [taken[-1] for taken in times] == [4.0, 300.0, 1.0]
    assert backend.passes[3:9] == [[(0, 300, 0)], [(0, 3, 0)], *[[(3, 1, 1)]] * 3, [(3, 256, 0)]]
    assert backend.passes[9:12] == [[(259, 41, 0)], [(0, 256, 0)], [(256, 44, 0)]]
    assert backend.passes[12:] == [[(300, 2, 2), (300, 2, 2)]] * 3
    assert backend.open == 0
