import pytest

from benchmarks.contestants import PLAIN, Answer
from benchmarks.decoding import Turn, add_up, measure, plain_ratio, table, total_rate
from benchmarks.identity import first_difference
from benchmarks.texts import Prompt
from outrider.metrics import SpeculationCounters


class Scripted:
    """Answers with so many tokens at a fixed rate."""

    def __init__(self, name, rate, lengths):
        self.name, self.rate, self.lengths = name, rate, lengths

    def answer(self, prompt, num_tokens):
        length = min(self.lengths.get(prompt, 20), num_tokens)
        return Answer(tuple(range(length)), 5, 0.5, (length - 1) / self.rate, SpeculationCounters(1, 4, 2, [1, 1], 1))


@pytest.fixture
def turns():
    prompts = [Prompt("a", "code", "a"), Prompt("b", "prose", "b"), Prompt("c", "prose", "c")]
    contestants = [Scripted(PLAIN, 20.0, {"c": 3}), Scripted("peer", 10.0, {"b": 12})]
    return measure(contestants, prompts, rounds=2, num_tokens=16)


def test_short_answers_are_not_rated(turns):
    assert [turn.prompt.id for turn in turns] == ["a", "b", "a", "b"]


def test_the_table_has_rates_ratios_and_counters(turns):
    peer = table(turns)["peer"]
    assert peer["tokens_per_s"]["median"] == pytest.approx(10.0)
    assert peer["ratio_to_outrider_plain"]["median"] == pytest.approx(0.5)
    assert peer["prompt_tokens_per_s"]["median"] == 10.0
    assert peer["same_tokens_as_outrider_plain"] == 2
    assert peer["counters"]["num_draft_tokens"] == 16
    assert peer["acceptance_rate"] == 0.5
    assert plain_ratio("peer", turns)["total"] == pytest.approx(2.0)


def test_total_rate_weighs_long_answers_more():
    quick, slow = Answer(tuple(range(101)), 1, 1.0, 1.0), Answer(tuple(range(11)), 1, 1.0, 1.0)
    assert total_rate([quick, slow]) == 55.0


def test_the_first_token_is_not_counted():
    assert Answer((1, 2, 3), 1, 1.0, 4.0).tokens_per_s == 0.5
    assert Answer((1,), 1, 1.0, 0.0).tokens_per_s == 0.0


def test_counters_add_up_by_position():
    total = add_up([SpeculationCounters(1, 2, 1, [1], 1), SpeculationCounters(2, 6, 5, [2, 2, 1], 1)])
    assert total == SpeculationCounters(3, 8, 6, [3, 2, 1], 2)


def test_a_turn_keeps_what_was_answered(turns):
    assert isinstance(turns[0], Turn)
    assert set(turns[0].answers) == {PLAIN, "peer"}


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
