"""Counters only grow, and the ratios say what their names say."""

import pytest

from outrider.metrics import SourceCounts, SpeculationCounters, acceptance_prob, acceptance_rate, mean_acceptance_length


def counted(*rounds):
    counters = SpeculationCounters()
    for num_drafted, num_accepted in rounds:
        counters.observe(num_drafted, num_accepted)
    return counters


def test_counts_of_rounds_of_different_lengths():
    counters = counted((3, 2), (1, 1), (5, 0), (3, 3))
    assert counters.num_drafts == 4
    assert counters.num_draft_tokens == 12
    assert counters.num_accepted_tokens == 6
    assert counters.num_accepted_tokens_per_pos == [3, 2, 1, 0, 0]
    assert counters.num_rejections == 2


def test_ratios():
    counters = counted((3, 2), (1, 1), (5, 0), (3, 3))
    assert acceptance_rate(counters) == 6 / 12
    assert mean_acceptance_length(counters) == 1 + 6 / 4
    assert acceptance_prob(counters) == 6 / (6 + 2)


def test_round_without_a_draft_changes_nothing():
    """vllm#45060: an empty round took one from a counter, which crashed the metrics exporter."""
    counters = counted((2, 1))
    before = (counters.num_drafts, counters.num_draft_tokens, counters.num_accepted_tokens, counters.num_rejections)
    counters.observe(0, 0)
    after = (counters.num_drafts, counters.num_draft_tokens, counters.num_accepted_tokens, counters.num_rejections)
    assert before == after == (1, 2, 1, 1)


def test_rounds_are_counted_by_the_rule_that_verified_their_drafts():
    counters = SpeculationCounters()
    for num_drafted, method in ((3, "block"), (0, "greedy"), (2, "point_mass"), (1, "block"), (1, None)):
        counters.observe(num_drafted, 0, method=method)
    assert counters.methods == {"block": 2, "point_mass": 1}


@pytest.mark.parametrize("ratio", [acceptance_rate, mean_acceptance_length, acceptance_prob])
def test_ratios_of_nothing_are_none(ratio):
    assert ratio(counted()) is None
    assert ratio(counted((0, 0))) is None


@pytest.mark.parametrize(("num_drafted", "num_accepted"), [(2, 3), (2, -1), (-1, -1)])
def test_impossible_counts_are_refused_whole(num_drafted, num_accepted):
    counters = counted((2, 1))
    with pytest.raises(ValueError, match=f"{num_accepted} of {num_drafted}"):
        counters.observe(num_drafted, num_accepted)
    assert counters == counted((2, 1))


@pytest.mark.parametrize(
    ("alpha", "num_drafted", "expected"), [(0.7, 5, 0.3882), (0.8, 3, 0.6507), (0.9, 10, 0.5862), (0.8, 1, 0.8)]
)
def test_acceptance_rate_falls_with_length_where_acceptance_prob_does_not(alpha, num_drafted, expected):
    """Rounds in their exact proportions when every tested token is accepted with chance alpha."""
    counters = SpeculationCounters()
    rounds = 100_000
    for accepted in range(num_drafted + 1):
        chance = alpha**accepted * (1 - alpha if accepted < num_drafted else 1)
        for _ in range(round(rounds * chance)):
            counters.observe(num_drafted, accepted)
    rate, prob = acceptance_rate(counters), acceptance_prob(counters)
    assert rate == pytest.approx(expected, abs=5e-5)
    assert prob == pytest.approx(alpha, abs=5e-5)


def test_sources_are_counted_by_name():
    counters = SpeculationCounters()
    counters.observe_sources(["a", "a", "b"], ["a"])
    counters.observe_sources(["b"], ["b"])
    assert counters.sources == {"a": SourceCounts(2, 1), "b": SourceCounts(2, 1)}


def test_counters_add_up_by_position_method_and_source():
    total = SpeculationCounters(1, 2, 1, [1], 1, {"block": 1}, {"a": SourceCounts(2, 1)})
    other = {"a": SourceCounts(4, 4), "b": SourceCounts(2, 1)}
    total.add(SpeculationCounters(2, 6, 5, [2, 2, 1], 1, {"block": 1, "greedy": 1}, other))
    sources = {"a": SourceCounts(6, 5), "b": SourceCounts(2, 1)}
    assert total == SpeculationCounters(3, 8, 6, [3, 2, 1], 2, {"block": 2, "greedy": 1}, sources)
