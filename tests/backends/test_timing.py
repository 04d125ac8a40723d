"""Passes are timed by the clock that is given, and leave nothing behind."""

from outrider.backends.timing import pass_seconds
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
        (rows,) = batch
        self.passes.append((self.length(rows.sequence_id), len(rows.token_ids), rows.num_logits))
        self.now += len(rows.token_ids) + (10 if len(self.passes) <= 3 else 0)
        return super().forward(batch)


def test_the_shortest_of_a_few_passes_counts_and_the_first_of_all_does_not():
    backend = Slow()
    assert pass_seconds(backend, (1, 4), lambda: backend.now) == [1.0, 4.0]
    assert backend.passes[1:] == [(0, 1, 1), (0, 4, 4)] * 3
    assert backend.open == 0
