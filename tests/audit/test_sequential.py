"""The test that may be stopped at any time."""

import numpy as np
import pytest

from outrider.audit.sequential import _LOG_ODDS, NUM_BINS, anytime_p_value, log_wealth, place
from outrider.errors import UsageError

LEVEL = 0.01


def courses(rng, law, num_runs, num_looks, step):
    counts = rng.multinomial(step, law, size=(num_runs, num_looks))
    return counts.cumsum(axis=1)


def test_every_bettor_plays_at_fair_odds():
    np.testing.assert_allclose(np.exp(_LOG_ODDS).mean(axis=1), 1)
    assert log_wealth([0] * NUM_BINS) == 0


def test_looking_after_every_few_observations_keeps_the_level():
    """200 looks at up to 10,000 observations: a chi-square test looked at as often would fail one run in four."""
    rng = np.random.default_rng(1)
    runs = courses(rng, np.full(NUM_BINS, 1 / NUM_BINS), 400, 200, 50)
    alarms = sum(anytime_p_value(run.tolist()) <= LEVEL for run in runs)
    assert alarms <= 400 * LEVEL


@pytest.mark.parametrize("shape", ["first half", "ends", "one bin"])
def test_a_total_variation_of_two_in_a_hundred_is_found(shape):
    law = np.full(NUM_BINS, 1 / NUM_BINS)
    up = {"first half": range(8), "ends": [0, 1, 14, 15], "one bin": [7]}[shape]
    down = [cell for cell in range(NUM_BINS) if cell not in up]
    law[list(up)] += 0.02 / len(up)
    law[down] -= 0.02 / len(down)
    rng = np.random.default_rng(2)
    found = [anytime_p_value(run.tolist()) <= 1e-5 for run in courses(rng, law, 50, 40, 2000)]
    assert all(found)


def test_places_are_uniform_whatever_the_law():
    rng = np.random.default_rng(3)
    law = np.array([0.62, 0.3, 0.0, 0.08])
    before = np.concatenate([[0], np.cumsum(law)[:-1]])
    tokens = rng.choice(4, p=law, size=20000)
    bins = [place(before[token], law[token], rng.random()) for token in tokens]
    counts = np.bincount(bins, minlength=NUM_BINS)
    assert len(counts) == NUM_BINS
    assert ((counts - 1250) ** 2 / 1250).sum() < 60
    assert place(1.0, 0.0, 0.5) == NUM_BINS - 1


def test_another_number_of_bins_is_refused():
    with pytest.raises(UsageError, match="3 bins"):
        log_wealth([1, 2, 3])
    assert anytime_p_value([]) == 1
