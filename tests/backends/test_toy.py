"""The toy models' laws are known as fractions. That their backend keeps its contract: test_backend_contract.py."""

from fractions import Fraction

import numpy as np
import pytest

from outrider.backends.base import Rows
from outrider.backends.toy import HashLM, TableLM, ToyBackend, exact_probs
from outrider.errors import UsageError
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


def test_closed_sequences_are_unknown_and_ids_are_not_used_again():
    backend = ToyBackend(TABLE)
    sequence_id = backend.open_sequence()
    backend.close_sequence(sequence_id)
    for refused in (backend.length, backend.close_sequence):
        with pytest.raises(UsageError, match=f"sequence {sequence_id} is not open"):
            refused(sequence_id)
    assert backend.open_sequence() != sequence_id
