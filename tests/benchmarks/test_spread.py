import pytest

from benchmarks.spread import paired_ratio, spread


def test_spread_of_five_numbers():
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0, "min": 1.0, "max": 5.0, "n": 5}


def test_ratios_are_taken_within_pairs():
    # The machine is half as fast in the second turn: the ratio does not notice.
    assert paired_ratio([30.0, 15.0], [20.0, 10.0])["median"] == 1.5


def test_pairs_must_be_complete():
    with pytest.raises(ValueError, match="argument"):
        paired_ratio([1.0], [1.0, 2.0])
