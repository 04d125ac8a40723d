import numpy as np
import pytest

from outrider.metrics.spread import median_interval, paired_ratio, spread


def test_spread_of_five_numbers():
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0, "min": 1.0, "max": 5.0, "n": 5}


def test_ratios_are_taken_within_pairs():
    # The machine is half as fast in the second turn: the ratio does not notice.
    assert paired_ratio([30.0, 15.0], [20.0, 10.0])["median"] == 1.5


def test_pairs_must_be_complete():
    with pytest.raises(ValueError, match="argument"):
        paired_ratio([1.0], [1.0, 2.0])


# The table of the sign test: the interval goes from the k-th smallest to the k-th largest of n.
@pytest.mark.parametrize(("n", "k"), [(5, 0), (6, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8)])
def test_the_median_lies_between_order_statistics(n, k):
    values = [float(value) for value in np.random.default_rng(n).permutation(n) + 1]
    assert median_interval(values) == (None if k == 0 else (k, n + 1 - k))


def test_the_interval_covers_the_median_as_often_as_it_says():
    rng = np.random.default_rng(1)
    samples = rng.exponential(size=(2000, 9))
    held = [low <= np.log(2) <= high for low, high in map(median_interval, samples.tolist())]
    assert np.mean(held) >= 0.95  # 0.961 in theory


def test_no_values_have_no_interval():
    assert median_interval([]) is None
