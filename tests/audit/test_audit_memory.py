"""A model that remembers says what it would have said; rows that depend on their company are found out."""

import numpy as np

from outrider.audit.memory import CheckedBackend, Memory, RememberedBackend
from outrider.backends.base import Rows
from outrider.backends.toy import HashLM, ToyBackend

MODEL = HashLM(5, seed=3, max_weight=1000)


class MoodyBackend(ToyBackend):
    """Gives other bits in passes of several sequences."""

    def forward(self, batch):
        logits = super().forward(batch)
        return logits + np.float32(1e-6) * (len(batch) > 1)


def run(backend):
    """Some passes with forks, crops and a tree; return every row."""
    first = backend.open_sequence()
    backend.forward([Rows(first, [1, 2, 3], num_logits=0)])
    second = backend.fork(first)
    rows = [backend.forward([Rows(first, [4, 0], 2), Rows(second, [4, 1, 2], 3)]).copy()]
    backend.crop(second, 4)
    rows.append(backend.forward([Rows(second, [0, 1, 2], 3, parents=[-1, 0, 0])]).copy())
    backend.keep_path(second, [0, 2])
    rows.append(backend.forward([Rows(second, [3]), Rows(first, [3])]).copy())
    assert backend.length(second) == 7
    backend.close_sequence(second)
    backend.close_sequence(first)
    return np.concatenate(rows)


def test_what_is_remembered_is_what_is_computed():
    plain = run(ToyBackend(MODEL))
    memory = Memory(ToyBackend(MODEL))
    assert (run(RememberedBackend(memory)) == plain).all()
    computed = memory.num_computed
    assert computed > 0
    assert (run(RememberedBackend(memory)) == plain).all()
    assert memory.num_computed == computed
    memory.close()


def test_a_long_new_text_becomes_what_rows_are_computed_from():
    memory = Memory(ToyBackend(MODEL))
    for start in (0, 1):
        text = tuple((start + place) % 5 for place in range(200))
        rows = [memory.row(text[:length]).copy() for length in (120, 199, 150, 3)]
        plain = ToyBackend(MODEL)
        sequence = plain.open_sequence()
        wanted = plain.forward([Rows(sequence, text, len(text))])
        assert all((row == wanted[length - 1]).all() for row, length in zip(rows, (120, 199, 150, 3), strict=True))


class CountingBackend(ToyBackend):
    """Counts the tokens that it is fed, and its open sequences."""

    num_fed = num_open = 0

    def open_sequence(self):
        self.num_open += 1
        return super().open_sequence()

    def close_sequence(self, sequence_id):
        self.num_open -= 1
        super().close_sequence(sequence_id)

    def forward(self, batch):
        self.num_fed += sum(len(rows.token_ids) for rows in batch)
        return super().forward(batch)


def test_what_follows_a_context_is_not_fed_with_it_again():
    backend = CountingBackend(MODEL)
    memory, plain = Memory(backend), ToyBackend(MODEL)
    text = (0, 1, 2, 3) * 20
    memory.row(text)
    contexts = [text]
    for num_fed in (80 + 5, 80 + 5 + 25, 80 + 5 + 25 + 25):
        contexts = [(*context, token_id) for context in contexts for token_id in range(5)][:25]
        assert (memory.rows(contexts) == plain._logits(contexts)).all()
        assert backend.num_fed == num_fed
    assert backend.num_open == 1 + 1 + 5 + 25 + 25  # the trunk, the text, and what follows
    memory.rows([(*context, token_id) for context in contexts for token_id in range(5)])
    assert backend.num_open == 1 + 64
    memory.close()
    assert backend.num_open == 0


def test_the_least_recently_used_rows_are_forgotten():
    memory = Memory(ToyBackend(MODEL), max_bytes=0)
    prefixes = [(one, other, third, 0, 1) for one in range(5) for other in range(5) for third in range(5)]
    for turn in range(3):
        for prefix in prefixes:
            memory.row((turn, *prefix))
    assert memory.num_computed == 375
    memory.row((2, *prefixes[-1]))
    assert memory.num_computed == 375
    memory.row((0, *prefixes[0]))
    assert memory.num_computed == 376


def test_rows_that_depend_on_their_company_are_counted():
    for kind, is_right in ((ToyBackend, True), (MoodyBackend, False)):
        backend = kind(MODEL)
        checked = CheckedBackend(backend, Memory(ToyBackend(MODEL)))
        run(checked)
        assert checked.num_rows == 10
        assert checked.num_different == (0 if is_right else 7)
