import pytest

from benchmarks.contestants import PLAIN
from benchmarks.decoding import plain_ratio
from benchmarks.identity import first_difference
from benchmarks.texts import Prompt
from outrider.metrics.paired import Answer, Turn


def test_our_plain_decoding_is_compared_with_a_peers():
    slow, quick, short = (
        Answer(tuple(range(11)), 1, 1.0, 2.0),
        Answer(tuple(range(11)), 1, 1.0, 1.0),
        Answer((1,), 1, 1.0, 0.0),
    )
    turns = [
        Turn(Prompt("a", "code", "a"), {PLAIN: quick, "peer": slow}),
        Turn(Prompt("b", "code", "b"), {PLAIN: short, "peer": slow}),
    ]
    ratio = plain_ratio("peer", turns)
    assert ratio["total"] == ratio["paired"]["median"] == 2.0
    assert ratio["paired"]["n"] == 1


@pytest.mark.parametrize(
    ("plain", "other", "difference"),
    [
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 9, 3), (1, 2, 9)),
        ((1, 2), (1, 2, 3), (2, None, 3)),
        ((1, 2, 3), (1,), (1, 2, None)),
        ((), (), None),
    ],
)
def test_first_difference(plain, other, difference):
    assert first_difference(plain, other) == difference
