"""outrider models, where nothing has to be fetched."""

import json

import pytest
import tiny

from outrider.models import download
from outrider.models.catalog import CATALOG


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def test_a_path_is_here_already(outrider, models):
    assert outrider("models", "pull", models["target"]) == (
        0,
        models["target"] + "\n",
        f"{models['target']} is a path already; there is nothing to fetch\n",
    )


def test_a_missing_or_unknown_command_brings_the_help_that_lists_them(outrider):
    status, out, err = outrider("models")
    assert (status, out, err) == (2, "", "outrider: Missing command; see outrider models --help\n")
    assert outrider("modles")[2].endswith("; see outrider --help\n")


@pytest.mark.parametrize("command", ["pull", "show"])
def test_an_empty_reference_is_refused(outrider, command):
    status, out, err = outrider("models", command, "")
    assert (status, out) == (2, "")
    assert err.startswith("outrider: the reference to a model is empty; ")


def test_one_cached_model_that_may_not_be_read_does_not_hide_the_others(outrider, cache, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(download, "_hash_file", refuse)
    model = CATALOG["smollm2-135m"]
    with (cache / "smollm2-135m.gguf").open("wb") as file:
        file.truncate(model.num_bytes)
    status, out, _ = outrider("models", "list")
    assert status == 0
    assert out.split()[:5] == ["name", "model", "license", "size", "where"]
    assert len(out.splitlines()) == 1 + len(CATALOG)
    assert "cannot be read: Permission denied" in next(line for line in out.splitlines() if line.startswith(model.name))
    entries = {entry["name"]: entry for entry in json.loads(outrider("models", "list", "--json")[1])["models"]}
    assert entries[model.name]["path"] is None
    assert "Permission denied" in entries[model.name]["problem"]


@pytest.mark.parametrize(
    ("draft", "relation", "status"),
    [("draft", "identical", 0), ("other", "overlapping", 0), ("proteins", "unrelated", 1)],
)
def test_a_pair_is_checked_without_running_it(outrider, models, monkeypatch, draft, relation, status):
    monkeypatch.setattr("outrider.engine.loading.NativeBackend", None)  # no weights are read
    pair = ("models", "check", models["target"], models[draft])
    found, out, err = outrider(*pair)
    assert (found, err) == (status, "")
    assert f"{draft} as a draft for target: the vocabularies are {relation}\n" in out
    found, out, _ = outrider(*pair, "--json")
    document = json.loads(out)
    assert (found, document["relation"], document["works"]) == (status, relation, status == 0)
    assert document["consequence"]
    assert document["shared_probability"] is None


def test_a_draft_no_smaller_than_its_target_is_told(outrider, models):
    told = "the draft is no smaller than the target"
    assert told not in outrider("models", "check", models["target"], models["draft"])[1]
    assert told in outrider("models", "check", models["target"], models["target"])[1]
    document = json.loads(outrider("models", "check", models["draft"], models["target"], "--json")[1])
    assert document["file_bytes"]["draft"] > document["file_bytes"]["target"]


def test_ids_that_differ_are_listed_where_they_are_few(outrider, models, tmp_path):
    named = tiny.tokenizer_metadata(tiny.build_tokenizer())
    named["tokenizer.ggml.tokens"][382] = "<|begin|>"
    tiny.write_gguf(tiny.build_model(), tmp_path / "named.gguf", metadata=named)
    status, out, _ = outrider("models", "check", models["target"], tmp_path / "named.gguf")
    assert status == 0
    assert "nearly identical" in out
    assert "    382: '<|im_start|>' / '<|begin|>'\n" in out
    document = json.loads(outrider("models", "check", models["target"], tmp_path / "named.gguf", "--json")[1])
    assert document["differing_ids"] == [{"id": 382, "target": "<|im_start|>", "draft": "<|begin|>"}]


def test_the_targets_probability_of_shared_tokens_is_measured_on_request(outrider, models, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "The quick brown fox jumps."}) + "\n" + json.dumps({"prompt": "x"}))
    shares = []
    for draft, how in (("draft", ["--prompts", prompts]), ("other", ["--prompts", prompts]), ("other", ["--measure"])):
        document = json.loads(outrider("models", "check", models["target"], models[draft], "--json", *how)[1])
        shares.append(document["shared_probability"])
    assert shares[0] == pytest.approx(1)
    assert 0.5 < shares[1] < 1
    assert 0.5 < shares[2] < 1
    assert shares[1] != shares[2]


def test_a_text_of_one_token_cannot_be_measured_on(outrider, models, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "a"}))
    status, _, err = outrider("models", "check", models["target"], models["draft"], "--prompts", prompts)
    assert status == 2
    assert err.startswith("outrider: the texts to measure on have no token that follows another; give longer ones")


def test_what_is_no_draft_model_is_no_pair(outrider, models):
    status, _, err = outrider("models", "check", models["target"], "ngram")
    assert status == 2
    assert "'ngram', which is no model and fits every target" in err


def test_a_model_is_shown_with_its_size_once_and_its_ids_as_ids(outrider, models, cache, monkeypatch):
    known = CATALOG["smollm2-135m"]
    monkeypatch.setattr("outrider.models.download.cached_path", lambda model, cache: models["target"])
    status, out, _ = outrider("models", "show", known.name)
    shown = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert status == 0
    assert "file_bytes" in shown
    assert "num_bytes" not in shown
    assert "," not in shown["bos_id"].strip()
    assert all(token_id.isdigit() for token_id in shown["eos_ids"].split(", "))
    assert json.loads(outrider("models", "show", known.name, "--json")[1])["num_bytes"] == known.num_bytes


def test_a_check_says_how_much_of_a_large_vocabulary_a_draft_can_say(outrider, models, monkeypatch):
    monkeypatch.setattr("outrider.drafters.compression.DraftOptions.__init__.__defaults__", ("int4", 100, None, None))
    _, out, _ = outrider("models", "check", models["target"], models["draft"])
    assert "it can say its 100 likeliest tokens and those that end an answer; --draft-options vocab=all" in out
