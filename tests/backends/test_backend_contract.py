"""What every backend keeps: a new one joins by a line in ``BACKENDS``.

Whatever is done to a sequence, its logits are those of decoding its tokens one by one, with ``==``.
"""

from functools import cache
from random import Random

import numpy as np
import pytest
from tiny_models import Shape, load

from outrider.audit.memory import Memory, RememberedBackend
from outrider.backends.base import Rows
from outrider.backends.toy import HashLM, ToyBackend
from outrider.errors import ContextLengthError, UsageError

MAX_LENGTH = 96
BACKENDS = {
    "toy": lambda: ToyBackend(HashLM(17, seed=3), MAX_LENGTH),
    "remembered": lambda: RememberedBackend(Memory(ToyBackend(HashLM(17, seed=3), MAX_LENGTH))),
    "native": lambda: load(Shape(), max_length=MAX_LENGTH),
    "native, int8, two threads": lambda: load(
        Shape(architecture="qwen2"), weights="int8", threads=2, max_length=MAX_LENGTH
    ),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return _made(request.param)


@cache
def _made(name):
    return BACKENDS[name]()


def one_by_one(backend, token_ids):
    """Return the logits after each token, fed alone."""
    sequence = backend.open_sequence()
    rows = [backend.forward([Rows(sequence, [token_id])])[0].copy() for token_id in token_ids]
    backend.close_sequence(sequence)
    return np.stack(rows)


def opened(backend, token_ids):
    sequence = backend.open_sequence()
    if token_ids:
        backend.forward([Rows(sequence, token_ids, 0)])
    return sequence


TEXT = [5, 2, 7, 7, 0, 1, 3, 3, 3, 16, 9, 2]


def test_logits_are_float32_of_the_vocabulary_and_finite(backend):
    sequence = backend.open_sequence()
    logits = backend.forward([Rows(sequence, TEXT[:3], 2)]).copy()
    assert (logits.dtype, logits.shape) == (np.float32, (2, backend.vocab_size))
    assert np.isfinite(logits).all()
    backend.close_sequence(sequence)


@pytest.mark.parametrize("cuts", [[12], [1, 11], [5, 7], [3, 3, 3, 3], [11, 1]])
def test_however_a_text_is_cut_into_passes(backend, cuts):
    wanted, sequence, start = one_by_one(backend, TEXT), backend.open_sequence(), 0
    for size in cuts:
        logits = backend.forward([Rows(sequence, TEXT[start : start + size], size)]).copy()
        assert (logits == wanted[start : start + size]).all()
        start += size
    assert backend.length(sequence) == 12
    backend.close_sequence(sequence)


def test_the_rows_of_others_change_nothing(backend):
    texts = [TEXT, TEXT[::-1], [1], [2, 2, 2]]
    wanted = [one_by_one(backend, text) for text in texts]
    sequences = [backend.open_sequence() for _ in texts]
    logits = backend.forward([Rows(s, text, len(text)) for s, text in zip(sequences, texts, strict=True)]).copy()
    assert (logits == np.concatenate(wanted)).all()
    for sequence in sequences:
        backend.close_sequence(sequence)


@pytest.mark.parametrize("length", [0, 1, 6, 11, 12])
def test_a_crop_is_as_if_nothing_more_had_been_seen(backend, length):
    sequence = opened(backend, TEXT)
    backend.crop(sequence, length)
    assert backend.length(sequence) == length
    logits = backend.forward([Rows(sequence, [4, 8], 2)]).copy()
    assert (logits == one_by_one(backend, [*TEXT[:length], 4, 8])[-2:]).all()
    backend.close_sequence(sequence)


@pytest.mark.parametrize("length", [1, 7, 12])
def test_forks_go_their_own_ways(backend, length):
    parent = opened(backend, TEXT)
    fork = backend.fork(parent)
    backend.crop(fork, length)
    logits = backend.forward([Rows(parent, [4]), Rows(fork, [8, 1], 2)]).copy()
    assert (logits[0] == one_by_one(backend, [*TEXT, 4])[-1]).all()
    assert (logits[1:] == one_by_one(backend, [*TEXT[:length], 8, 1])[-2:]).all()
    second = backend.fork(fork)
    backend.close_sequence(parent)
    backend.close_sequence(fork)
    assert backend.length(second) == length + 2
    logits = backend.forward([Rows(second, [6])]).copy()
    assert (logits[0] == one_by_one(backend, [*TEXT[:length], 8, 1, 6])[-1]).all()
    backend.close_sequence(second)


def random_tree(seed, size=9):
    random = Random(seed)
    return [random.randrange(17) for _ in range(size)], [random.randrange(-1, node) for node in range(size)]


def path_to(parents, node):
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]


@pytest.mark.parametrize("context", [[], TEXT])
@pytest.mark.parametrize("seed", range(3))
def test_a_node_of_a_tree_is_the_end_of_the_chain_that_leads_to_it(backend, seed, context):
    tokens, parents = random_tree(seed)
    sequence, other = opened(backend, context), backend.open_sequence()
    logits = backend.forward([Rows(sequence, tokens, 9, parents), Rows(other, TEXT, 1)]).copy()
    for node in range(9):
        chain = [*context, *(tokens[each] for each in path_to(parents, node))]
        assert (logits[node] == one_by_one(backend, chain)[-1]).all()
    assert backend.length(sequence) == len(context) + 9
    backend.close_sequence(sequence)
    backend.close_sequence(other)


@pytest.mark.parametrize("seed", range(3))
def test_a_kept_path_is_a_chain_and_the_rest_was_never_there(backend, seed):
    tokens, parents = random_tree(seed)
    for node in range(-1, 9):
        sequence, path = opened(backend, TEXT), path_to(parents, node)
        backend.forward([Rows(sequence, tokens, 9, parents)])
        backend.keep_path(sequence, path)
        chain = [*TEXT, *(tokens[each] for each in path)]
        assert backend.length(sequence) == len(chain)
        logits = backend.forward([Rows(sequence, [4, 8], 2)]).copy()
        assert (logits == one_by_one(backend, [*chain, 4, 8])[-2:]).all()
        backend.close_sequence(sequence)


def test_a_tree_that_was_dropped_was_never_there(backend):
    sequence = opened(backend, TEXT)
    backend.forward([Rows(sequence, *random_tree(1)[:1], 9, random_tree(1)[1])])
    backend.crop(sequence, 7)
    logits = backend.forward([Rows(sequence, [4])]).copy()
    assert (logits[0] == one_by_one(backend, [*TEXT[:7], 4])[-1]).all()
    backend.close_sequence(sequence)


def test_what_does_not_fit_is_refused_and_changes_nothing(backend):
    sequence = opened(backend, TEXT)
    low, high = -1, backend.vocab_size
    for error, refused in [
        (UsageError, lambda: backend.crop(sequence, 13)),
        (UsageError, lambda: backend.crop(sequence, -1)),
        (UsageError, lambda: backend.keep_path(sequence, [])),
        (UsageError, lambda: backend.forward([Rows(sequence, [high])])),
        (UsageError, lambda: backend.forward([Rows(sequence, [low])])),
        (UsageError, lambda: backend.forward([Rows(sequence, [])])),
        (UsageError, lambda: backend.forward([Rows(sequence, [0], 2)])),
        (UsageError, lambda: backend.forward([Rows(sequence, [0]), Rows(sequence, [0])])),
        (UsageError, lambda: backend.forward([Rows(10**6, [0])])),
        (UsageError, lambda: backend.forward([Rows(sequence, [0, 0], 1, [-1, 1])])),
        (UsageError, lambda: backend.forward([Rows(sequence, [0, 0], 1, [-1, -2])])),
        (UsageError, lambda: backend.forward([Rows(sequence, [0, 0], 1, [-1])])),
        (ContextLengthError, lambda: backend.forward([Rows(sequence, [0] * (MAX_LENGTH - 11))])),
        (ContextLengthError, lambda: backend.forward([Rows(sequence, [0] * 85, 1, [-1] * 85)])),
        (UsageError, lambda: backend.fork(10**6)),
        (UsageError, lambda: backend.length(10**6)),
        (UsageError, lambda: backend.close_sequence(10**6)),
    ]:
        with pytest.raises(error):
            refused()
        assert backend.length(sequence) == 12
    logits = backend.forward([Rows(sequence, [4])]).copy()
    assert (logits[0] == one_by_one(backend, [*TEXT, 4])[-1]).all()
    backend.close_sequence(sequence)


def test_a_tree_must_be_resolved_before_anything_else(backend):
    sequence = opened(backend, TEXT)
    backend.forward([Rows(sequence, [1, 2, 3], 1, [-1, 0, -1])])
    for refused in (
        lambda: backend.forward([Rows(sequence, [1])]),
        lambda: backend.fork(sequence),
        lambda: backend.crop(sequence, 13),
        lambda: backend.keep_path(sequence, [1]),
        lambda: backend.keep_path(sequence, [0, 2]),
        lambda: backend.keep_path(sequence, [3]),
    ):
        with pytest.raises(UsageError):
            refused()
        assert backend.length(sequence) == 15
    backend.close_sequence(sequence)


def test_a_cache_may_be_filled_to_the_last_place(backend):
    sequence = opened(backend, [1] * (MAX_LENGTH - 1))
    backend.forward([Rows(sequence, [2])])
    with pytest.raises(ContextLengthError):
        backend.forward([Rows(sequence, [2])])
    assert backend.length(sequence) == backend.max_length == MAX_LENGTH
    backend.close_sequence(sequence)
