"""Longest matches against a search everywhere; copies through insertions, deletions and renamings."""

from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.lookup import LONGEST_MATCH, Copy, Index, Resumption, match_length, vote

TEXT = list(range(100, 160))


def rescan(text, context):
    """Every place with the longest match, by looking everywhere; and its length."""
    lengths = {place: match_length(text, place, context, len(context)) for place in range(1, len(text))}
    longest = max(lengths.values(), default=0)
    return longest, [place for place, length in lengths.items() if length == longest]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=6))
def test_a_match_in_a_growing_text_is_what_a_rescan_finds(growth):
    index, text = Index(), []
    for tokens in growth:
        text += tokens
        index.extend(text)
        match = index.longest(text, text)
        longest, places = rescan(text, text)
        if match is None:
            assert longest == 0
            continue
        assert match.length == match_length(text, match.place, text, len(text))
        # With few occurrences all of them are looked at, and a longer match outvotes what is shorter by two.
        if len(text) <= 16:
            assert match.length >= longest - 5
            assert 0 < match.agreement <= 1
        assert match.length == longest or places


def test_the_longest_match_wins_and_of_equal_ones_the_latest():
    index = Index()
    text = [1, 2, 3, 7, 2, 3, 8, 2, 3, 9, 1, 2, 3]
    index.extend(text)
    match = index.longest(text, text)
    assert (text[match.place], match.length) == (7, 3)
    text = [2, 3, 8, 2, 3, 9, 2, 3]
    index = Index()
    index.extend(text)
    assert text[index.longest(text, text).place] == 8 or text[index.longest(text, text).place] == 9


def test_occurrences_vote_with_the_length_of_their_match():
    assert vote([(1, 5), (1, 5), (1, 6)]) == (5, 2 / 3)
    assert vote([(1, 5), (1, 5), (3, 6)]) == (6, 8 / 12)


def test_a_copy_that_is_exact_is_followed():
    context = [1, 2, *TEXT[:10]]
    copy = Copy(TEXT, 0, 2)
    assert copy.follow(context) == Resumption(10, 10)
    assert copy.expected(10, 3) == TEXT[10:13]
    context += TEXT[10:50]
    assert copy.follow(context) == Resumption(50, LONGEST_MATCH)
    assert copy.expected(50, 100) == TEXT[50:]


def test_after_a_deviation_of_unknown_length_a_replacement_is_guessed():
    copy = Copy(TEXT, 0, 0)
    assert copy.follow([*TEXT[:10], 7]) == Resumption(11, 0)


def test_a_copy_resumes_after_insertion_deletion_and_replacement():
    for output, place in [
        ([*TEXT[:10], 7, 8, 9, *TEXT[10:13]], 13),
        ([*TEXT[:10], *TEXT[20:23]], 23),
        ([*TEXT[:10], 7, 8, *TEXT[15:18]], 18),
    ]:
        copy = Copy(TEXT, 0, 0)
        for length in range(10, len(output) + 1):
            resumed = copy.follow(output[:length])
        assert (resumed.place, resumed.length) == (place, 3)
        assert copy.follow([*output, *TEXT[place : place + 4]]).place == place + 4


def test_what_was_replaced_once_is_expected_to_be_replaced_again():
    text = [1, 50, 51, 2, 3, 4, 5, 6, 50, 51, 7, 8, 9, 10, 11, 50, 12, 50, 51]
    copy = Copy(text, 0, 0)
    output = [1, 60, 61, 62, 2, 3, 4, 5]
    for length in range(1, len(output) + 1):
        resumed = copy.follow(output[:length])
    assert copy.expected(resumed.place, 9) == [6, 60, 61, 62, 7, 8, 9, 10, 11]
    # In the middle of the replacement, its rest comes first.
    resumed = copy.follow([*output, 6, 60])
    assert resumed.pending == (61, 62)
    assert copy.expected(resumed.place, 2) == [7, 8]
    # Twice not replaced: not expected any more.
    output += [6, 50, 51, 7, 8, 9, 10, 11, 50, 12]
    resumed = copy.follow(output)
    assert copy.expected(resumed.place, 2) == [50, 51]


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_no_output_confuses_a_copy(text, output):
    copy = Copy(text, 0, 0)
    for length in range(1, len(output) + 1):
        resumed = copy.follow(output[:length])
        assert 0 <= resumed.length <= LONGEST_MATCH
        assert 0 <= copy.start <= length
        expected = [*resumed.pending, *copy.expected(resumed.place, 8)]
        assert set(expected) <= set(range(4))
