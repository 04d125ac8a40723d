"""Each processor on numbers worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_core_shaping import Shaping, by_core, ids

from outrider.sampling import SamplingParams
from outrider.sampling.processors import TokenCounts, completing_ids

INF = float("inf")


def row(*values):
    return np.array(values, dtype=np.float32)


def penalised(logits, seen_ids, output_counts, **penalties):
    assert by_core(
        logits, Shaping(seen_ids=seen_ids, output_counts=ids(*output_counts), params=SamplingParams(**penalties))
    )
    return logits.tolist()


def test_bias_is_added_to_its_tokens_only():
    logits = row(1, 2, 3, -INF)
    by_core(logits, Shaping(ids(2, 0, 3), row(-4, 0.5, 7)))
    assert logits.tolist() == [1.5, 2, -1, -INF]


def test_repetition_penalty_divides_what_is_positive_and_multiplies_the_rest():
    logits = row(3, -3, 0, 5, -INF)
    assert penalised(logits, ids(0, 1, 2, 4), (0, 0, 0, 0), repetition_penalty=1.5) == [2, -4.5, 0, 5, -INF]


def test_presence_counts_once_frequency_each_time_and_the_prompt_not_at_all():
    logits = row(0, 0, 0, 0)
    given = penalised(logits, ids(0, 1, 2), (3, 1, 0), presence_penalty=0.5, frequency_penalty=0.25)
    assert given == [-1.25, -0.75, 0, 0]


def test_the_repetition_penalty_comes_before_the_others():
    assert penalised(row(2), ids(0), (1,), repetition_penalty=2.0, presence_penalty=1.0) == [0]


def test_masks():
    logits = row(1, 2, 3, 4)
    by_core(logits, Shaping(excluded_ids=ids(1)))
    assert logits.tolist() == [1, -INF, 3, 4]
    by_core(logits, Shaping(allowed=np.array([0b1010], np.uint8)))
    assert logits.tolist() == [-INF, -INF, -INF, 4]


@pytest.mark.parametrize(
    ("output", "expected"),
    [((), [9]), ((1,), [2, 9]), ((1, 2), [3, 9]), ((2, 1), [2, 9]), ((1, 2, 3), [9]), ((5, 1, 2), [3, 9])],
)
def test_words_are_completed_where_the_output_ends_in_their_beginning(output, expected):
    assert completing_ids(output, [(1, 2), (1, 2, 3), (9,)]) == expected


@given(
    prompt=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    output=st.lists(st.integers(0, 30), max_size=40),
    draft=st.lists(st.integers(0, 30), max_size=6),
)
def test_counts_are_those_of_the_whole_output(prompt, output, draft):
    counts = TokenCounts(prompt)
    for token_id in output:
        counts.add(token_id)
    for drafted in (draft, []):
        found, numbers = counts.after(drafted)
        everything = output + drafted
        assert len(found) == len({*prompt, *everything})
        assert dict(zip(found.tolist(), numbers.tolist(), strict=True)) == {
            token_id: everything.count(token_id) for token_id in {*prompt, *everything}
        }
