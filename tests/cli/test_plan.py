"""outrider plan from the command line, on tiny models: what it prints, keeps and refuses. No figure is judged."""

import json
import re
from pathlib import Path

import pytest

from outrider.cli.plan_tables import show_plan
from outrider.planner import compose
from outrider.planner.apply import read_plan


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    lines = [{"prompt": f"print(add({n}, 1))\n" * 2, "id": f"p{n}", "family": "ab"[n % 2]} for n in range(3)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(autouse=True)
def no_models_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))


@pytest.fixture
def always(monkeypatch):
    """Let the first draft be the best."""
    monkeypatch.setattr(compose, "_best", lambda speedups, eligible: 1)


@pytest.fixture
def never(monkeypatch):
    """Let none."""
    monkeypatch.setattr(compose, "LEAST_SPEEDUP", float("inf"))


def plan(outrider, models, prompts, *args):
    common = ("--target", models["target"], "--max-tokens", "8", "--threads", "1")
    return outrider("plan", *common, "--prompts", prompts, *args)


def test_a_plan_is_a_document_a_page_and_tables(outrider, models, prompts, tmp_path, always, capfd):
    saved, page = tmp_path / "plan.json", tmp_path / "plan.html"
    drafts = ("--draft", models["draft"], "--draft", models["other"], "--draft", "ngram")
    status, out, err = plan(
        outrider, models, prompts, *drafts, "--validate", "--save", saved, "--report", page, "--json"
    )
    assert status == 0
    document = json.loads(out)
    assert json.loads(saved.read_text()) == document
    assert document["choices"][0]["drafts"] == []
    assert {name for one in document["choices"] for name in one["drafts"]} == {
        models["draft"],
        models["other"],
        "ngram",
    }
    assert document["prompts"] == {"given": 3, "measured": 3, "tokens": 24, "families": {"a": 2, "b": 1}}
    run = [one for one in document["choices"] if one["measured_tokens_per_s"] is not None]
    assert len(run) == 7
    assert all(set(one["measured_families"]) == set(one["repriced_families"]) == {"a", "b"} for one in run)
    assert all(one["differing_answers"] == 0 and one["repriced_tokens_per_s"] > 0 for one in run)
    assert all(one["drift"] > 0 for one in document["passes"])
    assert set(document["ranks"]) == {models["draft"]}
    assert [one["relation"] for one in document["drafts"]] == ["identical", "overlapping"]
    assert "prompt 3 of 3" in err
    text = page.read_text()
    assert text.count("<svg") == 4
    assert not re.search(r"https?://|src=|@import", text)
    show_plan(read_plan(saved), None)
    assert "predicted  at the run's" in capfd.readouterr().out
    status, out, _ = plan(outrider, models, prompts, "--draft", "ngram")
    assert status == 0
    assert "ngram, 16" in out
    assert "From 3 of 3 prompts" in out
    assert "too few for an interval, which takes 6" in out


def test_a_saved_plan_says_how_to_draft(outrider, models, prompts, tmp_path, always):
    saved = tmp_path / "plan.json"
    assert plan(outrider, models, prompts, "--draft", models["draft"], "--draft", "ngram", "--save", saved)[0] == 0
    best = read_plan(saved).best
    ask = ("generate", "abc", "--max-tokens", "6", "--threads", "1", "--json")
    planned = json.loads(outrider(*ask, "--plan", saved)[1])
    plain = json.loads(outrider(*ask, "--target", models["target"])[1])
    assert planned["token_ids"] == plain["token_ids"]
    assert planned["speculation"]["active"]
    if best.num_speculative_tokens is not None:
        assert f"up to {best.num_speculative_tokens} tokens" in planned["speculation"]["reason"]
    status, _, err = outrider(*ask, "--plan", saved, "--target", models["draft"])
    assert status == 2
    assert "is for another model" in err
    assert "fingerprint" in err
    status, _, err = outrider("generate", "abc", "--threads", "2", "--plan", saved)
    assert status == 2
    assert "is for another machine: threads 2 instead of 1" in err
    status, _, err = outrider(*ask, "--plan", saved, "--draft", "ngram")
    assert (status, err.startswith("outrider: --draft is given, and --plan")) == (2, True)


def test_a_plan_not_to_speculate_drafts_nothing_and_is_a_no_under_require(outrider, models, prompts, tmp_path, never):
    saved = tmp_path / "plan.json"
    status, out, _ = plan(outrider, models, prompts, "--draft", "ngram", "--save", saved)
    assert status == 0
    assert "Do not speculate" in out
    assert plan(outrider, models, prompts, "--draft", "ngram", "--require")[0] == 1
    _, out, err = outrider("generate", "abc", "--max-tokens", "4", "--threads", "1", "--json", "--plan", saved)
    assert not json.loads(out)["speculation"]["active"]
    assert f"the plan {saved} says not to speculate" in err


def test_without_draft_every_model_at_hand_takes_part(outrider, models, prompts):
    status, out, _ = plan(outrider, models, prompts, "--models", Path(models["target"]).parent, "--json")
    assert status == 0
    document = json.loads(out)
    found = [one["reference"] for one in document["drafts"]]
    assert sorted(found) == sorted([models["draft"], models["other"]])
    assert models["proteins"] in [one["reference"] for one in document["left_out"]]
    assert any(one["drafts"] == ["ngram"] for one in document["choices"])


def test_two_drafts_of_one_name_are_told_apart(outrider, models, prompts, tmp_path):
    other = tmp_path / Path(models["draft"]).name
    other.write_bytes(Path(models["draft"]).read_bytes())
    status, out, _ = plan(outrider, models, prompts, "--draft", models["draft"], "--draft", other, "--json")
    assert status == 0
    names = [one["model"] for one in json.loads(out)["passes"]]
    assert len(set(names)) == 3
    assert names[2] == f"{names[1]}, {other}"


def test_one_prompt_has_no_interval_and_says_so(outrider, models, tmp_path):
    one = tmp_path / "one.jsonl"
    one.write_text('{"prompt": "abc"}\n')
    status, out, _ = plan(outrider, models, one, "--draft", "ngram")
    assert status == 0
    assert "single prompt, which says nothing of others" in out
    status, out, _ = plan(outrider, models, one, "--draft", "ngram", "--json")
    speeds = [one["speed"] for one in json.loads(out)["choices"]]
    assert all(figure["low"] is None for speed in speeds for figure in speed.values())


def test_a_noisy_machine_is_told(outrider, models, prompts, monkeypatch):
    monkeypatch.setattr("outrider.planner.measuring.MAX_SPREAD", -1.0)
    status, out, _ = plan(outrider, models, prompts, "--draft", "ngram")
    assert status == 0
    assert "This machine is noisy: times of one pass differ by" in out


def test_sampled_text_is_planned_for_with_every_rule(outrider, models, prompts):
    sampled = ("--draft", models["draft"], "--temperature", "1", "--json")
    status, out, _ = plan(outrider, models, prompts, *sampled)
    assert status == 0
    document = json.loads(out)
    assert {one["rule"] for one in document["choices"]} == {"auto", "token", "coupled"}
    assert document["choices"][document["recommended"]]["rule"] == "auto"
    assert 0 < document["ranks"][next(iter(document["ranks"]))]["overlap"]["value"] <= 1


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "no --prompts given"),
        (("--prompts", "EMPTY"), "holds no prompts"),
        (("--prompts", "LONG"), "prompt 1: the prompt has"),
        (("--prompts", "FILE", "--draft", "none"), "--draft is 'none'"),
        (("--prompts", "FILE", "--draft", ""), "--draft is empty"),
        (("--prompts", "FILE", "--draft", "ngrm"), "ngrm"),
        (("--prompts", "FILE", "--draft", "ngram", "--models", "x"), "--models is a place"),
        (("--prompts", "FILE", "--models", "/nowhere"), "the folder /nowhere cannot be listed"),
        (("--prompts", "FILE", "--save", "/nowhere/plan.json"), "--save is '/nowhere/plan.json'"),
        (("--prompts", "FILE", "--report", ""), "--report is ''"),
        (("--prompts", "FILE", "--rule", "blok"), "--rule is 'blok'"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(outrider, models, prompts, tmp_path, args, problem):
    (tmp_path / "EMPTY").write_text("\n")
    (tmp_path / "LONG").write_text(json.dumps({"prompt": "abc " * 400}) + "\n")
    named = {"FILE": prompts, "EMPTY": tmp_path / "EMPTY", "LONG": tmp_path / "LONG"}
    status, out, err = outrider("plan", "--target", models["target"], *(named.get(arg, arg) for arg in args))
    assert (status, out) == (2, "")
    assert problem in err
    assert err.count("outrider: ") == 1
    assert "Traceback" not in err


def test_no_target_is_refused(outrider, prompts):
    assert outrider("plan", "--prompts", prompts)[2].startswith("outrider: no --target given")


def test_drafts_that_cannot_draft_are_refused(outrider, models, prompts):
    status, _, err = plan(outrider, models, prompts, "--draft", models["proteins"])
    assert status == 2
    assert "it is refused" in err
