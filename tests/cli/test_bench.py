"""outrider bench: pairs, families, the check of tokens, and refusals that say what to do."""

import json

import pytest

from outrider.engine.contestant import Outrider
from outrider.metrics.paired import Answer
from outrider.planner import compose

LINES = (
    '{"id": "a", "family": "code", "prompt": "def add(left, right):"}\n'
    '{"id": "b", "family": "prose", "prompt": "one two three one two three"}\n'
    '{"id": "c", "prompt": "x"}\n'
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(LINES)
    return path


def test_the_document_has_both_ways_by_family(outrider, models, file):
    args = ("bench", "--target", models["target"], "--draft", models["draft"], "--prompts", file, "--max-tokens", 24)
    status, out, err = outrider(*args, "--repeats", 2, "--json")
    assert status == 0, err
    document = json.loads(out)
    assert document["same_tokens"] is True
    assert document["differing"] == []
    assert list(document["families"]) == ["code", "prose"]
    assert [turn["id"] for turn in document["turns"]] == ["a", "b", "c"] * 2
    plain, speculative = document["all"]["plain"], document["all"]["speculative"]
    assert plain["answers"] == speculative["answers"] == speculative["same_tokens_as_plain"] == 6
    assert plain["ratio_to_plain"]["median"] == 1.0
    assert speculative["ratio_to_plain"]["n"] == 3
    assert plain["acceptance_rate"] is None
    assert 0 <= speculative["acceptance_rate"] <= 1
    assert speculative["mean_acceptance_length"] >= 1
    assert [line.split(":")[0] for line in err.splitlines()] == ["a", "b", "c"] * 2


def test_the_table_says_what_the_figures_are(outrider, models, file):
    args = ("bench", "--target", models["target"], "--draft", "ngram", "--prompts", file, "--max-tokens", 20)
    status, out, _ = outrider(*args)
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["family", "code", "speculative"]
    assert "all " in out
    assert out.endswith("Tokens: the same with and without the draft, in every answer.\n")


def test_plain_decoding_alone_can_be_measured(outrider, models, file):
    status, out, _ = outrider("bench", "--target", models["target"], "--prompts", file, "--max-tokens", 10, "--json")
    document = json.loads(out)
    assert status == 0
    assert list(document["all"]) == ["plain"]
    assert document["same_tokens"] is None
    assert "name what drafts with --draft" in outrider("bench", "--target", models["target"], "--prompts", file)[1]


def test_short_answers_are_not_rated(outrider, models, file):
    args = ("bench", "--target", models["target"], "--draft", "ngram", "--prompts", file, "--max-tokens", 2)
    assert json.loads(outrider(*args, "--json")[1])["all"]["speculative"]["tokens_per_s"] is None
    status, out, _ = outrider(*args)
    assert status == 0
    assert "too short" in out


@pytest.mark.parametrize(
    ("flags", "same"), [((), None), (("--seed", 3), True), (("--seed", 3, "--rule", "token"), None)]
)
def test_sampled_tokens_are_compared_where_they_are_fixed(outrider, models, file, flags, same):
    args = ("bench", "--target", models["target"], "--draft", "ngram", "--prompts", file, "--max-tokens", 12)
    status, out, _ = outrider(*args, "--temperature", 1, *flags, "--json")
    assert status == 0
    assert json.loads(out)["same_tokens"] is same


@pytest.mark.parametrize(("rule", "same"), [("auto", True), ("token", None)])
def test_what_a_plan_says_is_measured_and_compared_where_its_rule_fixes_the_text(
    outrider, models, file, tmp_path, monkeypatch, rule, same
):
    saved = tmp_path / "plan.json"
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    monkeypatch.setattr(compose, "_best", lambda speedups, eligible: 1)
    sampling = ("--temperature", 1, "--max-tokens", 8, "--prompts", file)
    drafting = ("--target", models["target"], "--draft", models["draft"], "--rule", rule, "--threads", 1)
    assert outrider("plan", *drafting, *sampling, "--save", saved)[0] == 0
    status, out, _ = outrider("bench", "--plan", saved, *sampling, "--seed", 3, "--json")
    assert status == 0
    document = json.loads(out)
    assert list(document["all"]) == ["plain", "speculative"]
    assert document["same_tokens"] is same
    assert document["differing"] == []


def test_differing_tokens_are_named_and_end_with_status_1(outrider, models, file, monkeypatch):
    honest = Outrider.answer

    def answer(self, prompt, num_tokens):
        right = honest(self, prompt, num_tokens)
        wrong = self.name == "speculative" and prompt == "x"
        ids = (*right.token_ids[:-1], right.token_ids[-1] ^ 1) if wrong else right.token_ids
        return Answer(ids, right.num_prompt_tokens, right.first_token_s, right.decode_s, right.counters)

    monkeypatch.setattr(Outrider, "answer", answer)
    args = ("bench", "--target", models["target"], "--draft", "ngram", "--prompts", file, "--max-tokens", 12)
    status, out, _ = outrider(*args)
    assert status == 1
    assert out.endswith("Tokens: NOT the same with and without the draft: c.\n")
    assert json.loads(outrider(*args, "--json")[1])["differing"] == ["c"]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "no --prompts given"),
        (("--prompts", "nowhere.jsonl"), "nowhere.jsonl cannot be read"),
        (("--prompts", "FILE", "--repeats", 0), "--repeats is 0; it must be at least 1"),
        (("--prompts", "FILE", "--store", "somewhere"), "--store keeps answers"),
        (("--prompts", "FILE", "--ctx-size", 2), "prompt a: the prompt has"),
    ],
)
def test_bad_usage_is_refused_in_one_line(outrider, models, file, flags, problem):
    flags = [file if flag == "FILE" else flag for flag in flags]
    status, out, err = outrider("bench", "--target", models["target"], "--draft", "ngram", *flags)
    assert (status, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1
