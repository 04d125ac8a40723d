"""The toy backend keeps the contract of real ones, and its laws are known as fractions."""

from fractions import Fraction

import numpy as np
import pytest

from outrider.backends.base import Rows
from outrider.backends.toy import HashLM, TableLM, ToyBackend, exact_probs
from outrider.errors import ContextLengthError, UsageError
from outrider.sampling import SamplingParams, target_probs

TABLE = TableLM(table=((1, 2, 1), (0, 1, 3), (5, 0, 0)), first=(1, 1, 2))


def logits_of(backend, token_ids, num_logits=1):
    sequence_id = backend.open_sequence()
    logits = backend.forward([Rows(sequence_id, token_ids, num_logits)]).copy()
    backend.close_sequence(sequence_id)
    return logits


def test_table_model_depends_on_the_last_token_alone():
    assert exact_probs(TABLE, ()).tolist() == [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]
    assert exact_probs(TABLE, (0, 2, 1)).tolist() == [0, Fraction(1, 4), Fraction(3, 4)]


def test_hash_model_depends_on_the_whole_prefix():
    model = HashLM(8, seed=1)
    prefix = (3, 1, 4, 1, 5)
    variants = [prefix, prefix[1:], prefix[:-1], (1, 3, 4, 1, 5), (3, 1, 4, 1, 1, 5), (3, 1, 4, 1, 15)]
    assert len({model.weights(variant) for variant in variants}) == len(variants)
    assert model.weights(prefix) == HashLM(8, seed=1).weights(prefix) != HashLM(8, seed=2).weights(prefix)


def test_hash_model_weights_stay_in_range_and_are_never_all_zero():
    model = HashLM(3, seed=0, min_weight=0, max_weight=1)
    rows = [model.weights((i,)) for i in range(200)]
    assert {weight for row in rows for weight in row} == {0, 1}
    assert all(any(row) for row in rows)


@pytest.mark.parametrize("model", [TABLE, HashLM(5, seed=2, min_weight=0)])
def test_logits_give_the_exact_law(model):
    logits = logits_of(ToyBackend(model), [1, 2, 0])
    assert logits.dtype == np.float32
    probs = target_probs(logits, SamplingParams(temperature=1.0))[0]
    np.testing.assert_allclose(probs, exact_probs(model, (1, 2, 0)).astype(np.float64), rtol=1e-6)


def test_rows_do_not_depend_on_how_a_prompt_is_cut_or_what_else_is_in_the_pass():
    backend = ToyBackend(HashLM(8, seed=3))
    tokens = [5, 2, 7, 7, 0, 1]
    whole = logits_of(backend, tokens, num_logits=6)
    one, other = backend.open_sequence(), backend.open_sequence()
    first = backend.forward([Rows(one, tokens[:2], 2), Rows(other, [1, 1], 1)])[:2]
    second = backend.forward([Rows(other, [3], 0), Rows(one, tokens[2:], 4)])
    assert (np.concatenate([first, second]) == whole).all()


def test_crop_forgets_exactly_the_tail():
    backend = ToyBackend(HashLM(8, seed=3))
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [1, 2, 3, 4])])
    backend.crop(sequence_id, 2)
    assert backend.length(sequence_id) == 2
    again = backend.forward([Rows(sequence_id, [6])])
    assert (again == logits_of(backend, [1, 2, 6])).all()


def test_nodes_of_a_tree_are_scored_as_the_chains_that_lead_to_them():
    backend = ToyBackend(HashLM(8, seed=3))
    one, other = backend.open_sequence(), backend.open_sequence()
    backend.forward([Rows(one, [1, 2])])
    tree = Rows(one, [5, 6, 6, 7, 0], num_logits=4, parents=[-1, 0, -1, 1, 2])
    logits = backend.forward([tree, Rows(other, [4])])
    chains = [[5, 6], [6], [5, 6, 7], [6, 0]]
    assert (logits[:4] == np.concatenate([logits_of(backend, [1, 2, *chain]) for chain in chains])).all()
    assert (logits[4:] == logits_of(backend, [4])).all()
    assert backend.length(one) == 7


@pytest.mark.parametrize(("nodes", "kept"), [([], []), ([2], [6]), ([0, 1, 3], [5, 6, 7])])
def test_a_kept_path_is_a_chain(nodes, kept):
    backend = ToyBackend(HashLM(8, seed=3))
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [1, 2])])
    backend.forward([Rows(sequence_id, [5, 6, 6, 7], parents=[-1, 0, -1, 1])])
    backend.keep_path(sequence_id, nodes)
    assert backend.length(sequence_id) == 2 + len(kept)
    assert (backend.forward([Rows(sequence_id, [3])]) == logits_of(backend, [1, 2, *kept, 3])).all()


def test_a_tree_must_be_resolved_first():
    backend = ToyBackend(HashLM(8, seed=3))
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [1])])
    for refused in (
        lambda: backend.keep_path(sequence_id, []),
        lambda: backend.forward([Rows(sequence_id, [1, 1], parents=[-1, 1])]),
        lambda: backend.forward([Rows(sequence_id, [1, 1], parents=[-1, -2])]),
        lambda: backend.forward([Rows(sequence_id, [1, 1], parents=[-1])]),
    ):
        with pytest.raises(UsageError):
            refused()
    backend.forward([Rows(sequence_id, [1, 2, 3], parents=[-1, 0, -1])])
    for refused in (
        lambda: backend.forward([Rows(sequence_id, [1])]),
        lambda: backend.fork(sequence_id),
        lambda: backend.crop(sequence_id, 2),
        lambda: backend.keep_path(sequence_id, [1]),
        lambda: backend.keep_path(sequence_id, [0, 2]),
        lambda: backend.keep_path(sequence_id, [3]),
        lambda: backend.keep_path(sequence_id, [-1]),
    ):
        with pytest.raises(UsageError):
            refused()
        assert backend.length(sequence_id) == 4
    backend.crop(sequence_id, 1)
    assert (backend.forward([Rows(sequence_id, [6])]) == logits_of(backend, [1, 6])).all()


def test_a_fork_goes_its_own_way():
    backend = ToyBackend(HashLM(8, seed=3))
    parent = backend.open_sequence()
    backend.forward([Rows(parent, [1, 2])])
    fork = backend.fork(parent)
    logits = backend.forward([Rows(parent, [3]), Rows(fork, [4])])
    assert (logits == np.concatenate([logits_of(backend, [1, 2, 3]), logits_of(backend, [1, 2, 4])])).all()
    backend.close_sequence(parent)
    assert backend.length(fork) == 3


def test_refusals_leave_everything_as_it_was():
    backend = ToyBackend(TABLE, max_length=3)
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [1, 2])])
    for error, refused in [
        (UsageError, lambda: backend.crop(sequence_id, 3)),
        (UsageError, lambda: backend.crop(sequence_id, -1)),
        (UsageError, lambda: backend.forward([Rows(sequence_id, [3])])),
        (UsageError, lambda: backend.forward([Rows(sequence_id, [-1])])),
        (UsageError, lambda: backend.forward([Rows(sequence_id, [])])),
        (UsageError, lambda: backend.forward([Rows(sequence_id, [0], 2)])),
        (UsageError, lambda: backend.forward([Rows(sequence_id, [0]), Rows(sequence_id, [0])])),
        (UsageError, lambda: backend.forward([Rows(99, [0])])),
        (ContextLengthError, lambda: backend.forward([Rows(sequence_id, [0, 0])])),
    ]:
        with pytest.raises(error):
            refused()
        assert backend.length(sequence_id) == 2
    assert (backend.vocab_size, backend.max_length) == (3, 3)


def test_closed_sequences_are_unknown_and_ids_are_not_used_again():
    backend = ToyBackend(TABLE)
    sequence_id = backend.open_sequence()
    backend.close_sequence(sequence_id)
    for refused in (backend.length, backend.close_sequence):
        with pytest.raises(UsageError, match=f"sequence {sequence_id} is not open"):
            refused(sequence_id)
    assert backend.open_sequence() != sequence_id
