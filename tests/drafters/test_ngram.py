"""Prompt lookup: the longest match, the most recent one, and no rescan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.base import DraftRequest
from outrider.drafters.ngram import NgramDrafter
from outrider.errors import UsageError


def propose(drafter, context, max_tokens=100, request_id=0):
    (draft,) = drafter.propose([DraftRequest(request_id, context, max_tokens, shaper=None, coins=None)])
    assert draft.probs is None
    return draft.token_ids


def by_rescan(context, max_tokens, min_n, max_n, per_match):
    """The specification, by looking everywhere."""
    for n in range(max_n, min_n - 1, -1):
        for start in range(len(context) - n - 1, -1, -1):
            if context[start : start + n] == context[-n:]:
                repeated = list(context)
                for _ in range(min(max_tokens, per_match * n)):
                    repeated.append(repeated[start + n + len(repeated) - len(context)])
                return tuple(repeated[len(context) :])
    return ()


def test_a_worked_example():
    # "2 3" occurred twice before; after the later one came 7 8.
    assert propose(NgramDrafter(max_n=3), [1, 2, 3, 9, 5, 2, 3, 7, 8, 2, 3], 2) == (7, 8)


def test_a_longer_match_beats_a_later_one():
    assert propose(NgramDrafter(), [1, 2, 3, 7, 2, 3, 8, 1, 2, 3], 1) == (7,)


def test_a_repetition_is_continued_with_its_period():
    assert propose(NgramDrafter(min_n=2, max_n=2, tokens_per_match=4), [5, 1, 2, 1, 2], 7) == (1, 2, 1, 2, 1, 2, 1)


def test_a_longer_match_vouches_for_more_tokens():
    context = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert len(propose(NgramDrafter(max_n=4), [*context, 0, 2, 3])) == 4
    assert len(propose(NgramDrafter(max_n=4), [*context, 0, 2, 3, 4, 5])) == 8


@pytest.mark.parametrize("context", [[], [1], [1, 2], [1, 2, 3, 4]])
def test_nothing_is_proposed_without_a_match(context):
    assert propose(NgramDrafter(), context) == ()


def test_a_match_that_is_too_short_is_none():
    assert propose(NgramDrafter(min_n=1), [3, 1, 2, 1], 1) == (2,)
    assert propose(NgramDrafter(min_n=2), [3, 1, 2, 1], 1) == ()


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=8),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 6),
)
def test_a_growing_context_gives_what_a_rescan_gives(growth, min_n, more, max_tokens):
    drafter = NgramDrafter(min_n=min_n, max_n=min_n + more)
    context = []
    for tokens in growth:
        context += tokens
        assert propose(drafter, context, max_tokens) == by_rescan(context, max_tokens, min_n, min_n + more, 2)


def test_requests_do_not_see_each_other_and_release_forgets():
    drafter = NgramDrafter()
    assert propose(drafter, [1, 2, 3, 1, 2], 1, request_id=1) == (3,)
    assert propose(drafter, [9, 1, 2], 1, request_id=2) == ()
    drafter.release(1)
    drafter.release(1)
    assert propose(drafter, [4, 1, 2], 1, request_id=1) == ()


def test_a_round_looks_at_the_end_of_the_context_only():
    class Counting(list):
        looked_at = 0

        def __getitem__(self, key):
            item = super().__getitem__(key)
            self.looked_at += len(item) if isinstance(key, slice) else 1
            return item

    drafter = NgramDrafter()
    context = Counting(range(10_000))
    propose(drafter, context)
    context.append(5)
    context.looked_at = 0
    propose(drafter, context)
    assert context.looked_at < 50


@pytest.mark.parametrize("options", [{"min_n": 0}, {"min_n": 4, "max_n": 3}, {"tokens_per_match": 0}])
def test_limits_that_make_no_sense_are_refused(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        NgramDrafter(**options)
