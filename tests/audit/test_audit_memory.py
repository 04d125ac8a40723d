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
