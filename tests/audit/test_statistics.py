"""The tests of counts, tested themselves: against SciPy where it has them, size and power by simulation elsewhere."""

from math import inf, log

import numpy as np
import pytest
from scipy import stats

from outrider.audit.statistics import (
    Cells,
    g_statistic,
    g_test,
    holm,
    least_noncentrality,
    least_total_variation,
    needed_observations,
    permutation_test,
    pooled,
    rate_test,
    two_sample_g_test,
)
from outrider.errors import UsageError

LAW = np.array([0.4, 0.3, 0.2, 0.1])


def drawn(rng, num, law=LAW):
    return Cells(tuple(int(count) for count in rng.multinomial(num, law)), tuple(law))


def test_g_statistic_is_scipys():
    rng = np.random.default_rng(1)
    for num in (100, 5000):
        counts = rng.multinomial(num, LAW)
        scipys = stats.power_divergence(counts, LAW * num, lambda_="log-likelihood")
        assert g_statistic(counts, LAW * num) == pytest.approx(scipys.statistic)
        # Williams' correction is all that is between the two.
        correction = 1 + (sum(1 / LAW) - 1) / (6 * num * 3)
        assert g_test([Cells(tuple(map(int, counts)), tuple(LAW))]).p_value == pytest.approx(
            stats.chi2.sf(scipys.statistic / correction, 3)
        )


def test_two_sample_g_is_scipys_but_for_the_correction():
    table = np.array([[410, 290, 200, 100], [830, 560, 390, 220]])
    scipys = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood")
    ours = two_sample_g_test([(table[0].tolist(), table[1].tolist())])
    assert ours.df == scipys.dof
    assert ours.statistic == pytest.approx(scipys.statistic, rel=0.005)
    assert ours.statistic < scipys.statistic


def test_size_of_the_g_test_over_many_small_cells():
    """20 groups of 30 cells that expect about 33 each: without the correction 1 % would be 1.9 %."""
    rng = np.random.default_rng(2)
    law = np.full(30, 1 / 30)
    p_values = np.array([g_test([drawn(rng, 1000, law) for _ in range(20)]).p_value for _ in range(800)])
    for level in (0.1, 0.01):
        assert stats.binom.sf((p_values <= level).sum() - 1, len(p_values), level) > 1e-4


def test_power_of_the_g_test_is_what_is_claimed():
    rng = np.random.default_rng(3)
    num, level, power = 4000, 1e-4, 0.9
    distance = least_total_variation(num, 3, level, power)
    # The hardest to find has sum((other - law)**2 / law) = 4 TV**2: half the mass up, half down, in proportion.
    law = np.array([0.25, 0.25, 0.25, 0.25])
    other = law + distance / 2 * np.array([1, 1, -1, -1])
    counts = rng.multinomial(num, other, size=3000)
    found = np.mean([g_test([Cells(tuple(map(int, one)), tuple(law))]).p_value <= level for one in counts])
    assert found == pytest.approx(power, abs=0.02)
    assert needed_observations(distance, 3, level, power) == pytest.approx(num, abs=2)


def test_noncentrality_is_that_of_the_tables():
    """Of chi-square tests at 0.01 with power 0.9."""
    for df, expected in ((1, 14.88), (9, 26.12), (49, 46.95)):
        assert least_noncentrality(df, 0.01, 0.9) == pytest.approx(expected, abs=0.01)


def test_something_impossible_fails_at_once():
    cells = Cells((50, 49, 1), (0.5, 0.5, 0.0))
    assert g_test([cells]).statistic == inf
    assert g_test([Cells((100,), (1.0,)), cells]).p_value == 0
    assert pooled([50, 49, 1], [0.5, 0.5, 0.0]).probs[-1] == 0
    assert g_test([pooled([50, 49, 1], [0.5, 0.5, 0.0])]).p_value == 0


def test_cells_are_pooled_by_the_law_alone():
    law = [0.5, 0.3, 0.1, 0.06, 0.02, 0.02]
    for counts in ([500, 300, 100, 60, 20, 20], [0, 0, 0, 0, 0, 1000]):
        cells = pooled(counts, law)
        assert cells.probs == pytest.approx((0.5, 0.3, 0.1, 0.06, 0.04))
    assert pooled([500, 480, 20], [0.5, 0.48, 0.02]).counts == (500, 500)  # the rest is too small to stand alone
    assert pooled([1, 1], [0.5, 0.5]).counts == (2,)
    assert pooled([600, 300, 100], [0.6, 0.3, 0.1], most_cells=1).counts == (600, 400)


def test_cells_that_are_no_law_are_refused():
    for counts, probs in [((1,), (0.5,)), ((1, 2), (1.0,)), ((-1, 2), (0.5, 0.5)), ((), ()), ((1, 1), (1.5, -0.5))]:
        with pytest.raises(UsageError):
            Cells(counts, probs)


def test_size_and_power_of_the_two_sample_test():
    rng = np.random.default_rng(4)
    other = LAW + np.array([0.05, -0.05, 0, 0])

    def rejected(law, level):
        groups = [
            [(rng.multinomial(600, LAW).tolist(), rng.multinomial(400, law).tolist()) for _ in range(5)]
            for _ in range(1000)
        ]
        return sum(two_sample_g_test(group).p_value <= level for group in groups)

    assert stats.binom.sf(rejected(LAW, 0.01) - 1, 1000, 0.01) > 1e-4
    # 5 groups of 600 * 400 / 1000 = 240 observations and a total variation of 0.05 in one direction
    noncentrality = 5 * 240 * 0.05**2 * (1 / 0.42 + 1 / 0.28)
    assert rejected(other, 0.01) / 1000 == pytest.approx(
        stats.ncx2.sf(stats.chi2.isf(0.01, 15), 15, noncentrality), abs=0.06
    )


def test_two_sample_test_of_nothing_says_nothing():
    assert two_sample_g_test([]).p_value == 1
    assert two_sample_g_test([([0, 0], [5, 5]), ([3], [4])]).p_value == 1
    assert two_sample_g_test([([1, 2, 0], [1, 0, 1])]).df == 0


def test_permutation_test_is_exact_for_small_samples():
    rng = np.random.default_rng(5)
    found = permutation_test([([9, 1], [1, 9])], rng, 2000)
    assert found.p_value == pytest.approx(stats.fisher_exact([[9, 1], [1, 9]]).pvalue, abs=0.002)
    assert permutation_test([([5, 5], [5, 5])], rng, 200).p_value == 1
    assert permutation_test([], rng, 10).p_value == 1
    sizes = [
        permutation_test([(rng.multinomial(6, LAW).tolist(), rng.multinomial(5, LAW).tolist())], rng, 99).p_value
        for _ in range(400)
    ]
    assert stats.binom.sf((np.array(sizes) <= 0.05).sum() - 1, 400, 0.05) > 1e-4


def test_rate_test_is_never_too_small_and_finds():
    rng = np.random.default_rng(6)
    chances = rng.uniform(0.6, 1.0, size=3000)
    p_values = [rate_test(3000, int((rng.random(3000) < chances).sum()), chances.sum()).p_value for _ in range(2000)]
    assert (np.array(p_values) <= 0.01).mean() <= 0.01
    assert rate_test(100, 90, 90.0).p_value == 1
    assert rate_test(100, 99, 100.0).p_value == 0
    assert rate_test(0, 0, 0.0).p_value == 1
    exact = 2 * stats.binom.sf(899, 1000, 0.85)
    assert exact < rate_test(1000, 900, 850.0).p_value < 30 * exact
    assert rate_test(1000, 900, 850.0).statistic == pytest.approx(
        2000 * (0.9 * log(0.9 / 0.85) + 0.1 * log(0.1 / 0.15))
    )


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03], 0.05) == [True, False, False]
    assert holm([0.01, 0.02, 0.03], 0.05) == [True, True, True]
    assert holm([], 0.05) == []
    adjusted = stats.false_discovery_control([0.2], method="bh")  # the same for one
    assert holm([0.2], 0.21) == [bool(adjusted[0] <= 0.21)]


def test_size_of_the_two_sample_test_over_many_groups_with_a_few_rare_cells():
    """300 groups, in each of which all cells but one are rare: as a cell, these would alarm nine times too often."""
    rng = np.random.default_rng(7)
    law = [0.97, 0.01, 0.01, 0.01]
    p_values = []
    for _ in range(300):
        one, other = rng.multinomial(60, law, size=(2, 300)).tolist()
        p_values.append(two_sample_g_test(list(zip(one, other, strict=True))).p_value)
    assert stats.binom.sf((np.array(p_values) <= 0.01).sum() - 1, len(p_values), 0.01) > 1e-3
    table = [([60, 40, 3, 1], [50, 50, 0, 2])]
    assert two_sample_g_test(table).df == 1
    assert two_sample_g_test(table).statistic == two_sample_g_test([([60, 44], [50, 52])]).statistic


def test_what_is_all_but_impossible_is_a_failure_too():
    finding = g_test([Cells((5, 5), (5e-324, 1.0))])
    assert finding.p_value == 0
    assert finding.statistic == inf
