"""What a draft's vocabulary is worth to a target: shares of probability by hand."""

import numpy as np
import pytest
from small_vocabularies import BYTES, byte_level

from outrider.backends.toy import TableLM, ToyBackend
from outrider.engine.draft_check import check_draft, shared_probability
from outrider.engine.loading import Model
from outrider.errors import UsageError
from outrider.models.vocabularies import Relation

TABLE = TableLM(table=((1, 2, 1), (3, 0, 1), (1, 1, 0)), first=(1, 1, 1))


def model(tokens, name="toy", table=TABLE, max_length=50):
    tokenizer = byte_level(tokens)
    return Model(name, ToyBackend(table, max_length), tokenizer, None, max_length)


def test_the_probability_of_shared_tokens_is_the_mean_over_positions():
    target = model(["a", "b", "c"])
    shared = np.array([0, 2])
    # After a, b and a: 2/4, 4/4 and 2/4. The first token of a text is given, and the last is followed by nothing.
    assert shared_probability(target, ["abac"], shared) == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert shared_probability(target, ["ab", "b", "ba"], shared) == pytest.approx((0.5 + 1) / 2)


def test_long_texts_are_measured_as_far_as_the_context_goes_and_in_pieces():
    target = model(["a", "b", "c"])
    assert shared_probability(target, ["a" * 500], np.array([1])) == pytest.approx(0.5)
    assert not target.backend._caches


def test_texts_without_a_position_are_refused():
    with pytest.raises(UsageError, match="no token that follows another"):
        shared_probability(model(["a", "b", "c"]), ["a", ""], np.array([0]))


def test_a_check_says_what_is_shared_and_what_follows():
    target, draft = model(BYTES), model([*BYTES[::-1], " the"], "small")
    check = check_draft(target, draft)
    document = check.to_json()
    assert (document["target"], document["draft"]) == ("toy", "small")
    assert check.comparison.relation is Relation.OVERLAPPING
    assert (document["num_shared_tokens"], document["num_tokens"]) == (256, {"target": 256, "draft": 257})
    assert document["shared_probability"] is None
    assert document["differing_ids"] == []
    assert document["num_differing_ids"] == 257
