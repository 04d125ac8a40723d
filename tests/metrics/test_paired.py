from dataclasses import dataclass

import pytest

from outrider.metrics import SpeculationCounters
from outrider.metrics.paired import Answer, by_family, ratio_by_prompt, summary, take_turns, total_rate


@dataclass(frozen=True)
class Prompt:
    id: str
    family: str | None
    text: str


class Scripted:
    """Answers with so many tokens at a fixed rate, and notes when it was asked."""

    def __init__(self, name, rate, lengths, asked):
        self.name, self.rate, self.lengths, self.asked = name, rate, lengths, asked

    def answer(self, prompt, num_tokens):
        self.asked.append((self.name, prompt, num_tokens))
        length = min(self.lengths.get(prompt, 20), num_tokens)
        return Answer(tuple(range(length)), 5, 0.5, (length - 1) / self.rate, SpeculationCounters(1, 4, 2, [1, 1], 1))


def race(repeats=2, num_tokens=16):
    prompts = [Prompt("1", "code", "a"), Prompt("2", "prose", "b"), Prompt("3", None, "c")]
    asked, told = [], []
    contestants = [Scripted("our plain", 20.0, {"c": 3}, asked), Scripted("peer", 10.0, {"b": 12}, asked)]
    turns = take_turns(contestants, prompts, repeats=repeats, num_tokens=num_tokens, tell=told.append)
    assert told == turns
    return turns, asked


def test_everyone_answers_every_prompt_in_turn_and_begins_in_turn():
    turns, asked = race()
    assert [turn.prompt.id for turn in turns] == ["1", "2", "3", "1", "2", "3"]
    assert asked[:2] == [("our plain", "a", 8), ("peer", "a", 8)]  # the warm-up
    assert [name for name, _, _ in asked[2:10]] == ["our plain", "peer", "peer", "our plain"] * 2
    assert all(list(turn.answers) == ["our plain", "peer"] for turn in turns)


def test_the_warm_up_is_no_longer_than_the_answers():
    assert race(num_tokens=3)[1][0] == ("our plain", "a", 3)


def test_short_answers_are_not_rated():
    turns, _ = race()
    assert [turn.is_rated for turn in turns] == [True, True, False] * 2
    row = summary(turns[2:3], "our plain")["peer"]
    assert row["tokens_per_s"] is None
    assert row["answers"] == 1
    assert row["acceptance_rate"] == 0.5


def test_the_summary_has_rates_ratios_and_counters():
    peer = summary(race()[0], "our plain")["peer"]
    assert peer["tokens_per_s"]["median"] == pytest.approx(10.0)
    assert peer["tokens_per_s"]["n"] == 4
    assert peer["ratio_to_our_plain"]["median"] == pytest.approx(0.5)
    assert peer["ratio_to_our_plain"]["n"] == 2  # prompts, each once
    assert peer["ratio_to_our_plain"]["interval_95"] is None
    assert peer["total_ratio_to_our_plain"] == pytest.approx(0.5)
    assert peer["first_token_s"]["median"] == 0.5
    assert peer["prompt_tokens_per_s"]["median"] == 10.0
    assert peer["same_tokens_as_our_plain"] == 2
    assert peer["counters"]["num_draft_tokens"] == 24
    assert peer["mean_acceptance_length"] == 3.0


def test_nothing_measured_is_an_empty_summary():
    assert summary([], "our plain") == {}


def test_a_prompt_counts_once_with_its_median():
    turns, _ = race(repeats=1)
    slow = [with_seconds(turns[0], "peer", seconds) for seconds in (1.5, 3.0, 30.0)]
    ratio = ratio_by_prompt([*slow, turns[1]], "peer", "our plain")
    assert ratio["n"] == 2
    assert ratio["min"] == pytest.approx(15 / 3.0 / 20)


def with_seconds(turn, name, seconds):
    return type(turn)(turn.prompt, {**turn.answers, name: Answer(tuple(range(16)), 5, 0.5, seconds)})


def test_families_are_those_of_the_prompts():
    assert {family: len(own) for family, own in by_family(race()[0]).items()} == {"code": 2, "prose": 2}


def test_total_rate_weighs_long_answers_more():
    quick, slow = Answer(tuple(range(101)), 1, 1.0, 1.0), Answer(tuple(range(11)), 1, 1.0, 1.0)
    assert total_rate([quick, slow]) == 55.0


def test_the_first_token_is_not_counted():
    assert Answer((1, 2, 3), 1, 1.0, 4.0).tokens_per_s == 0.5
    assert Answer((1,), 1, 1.0, 0.0).tokens_per_s == 0.0
