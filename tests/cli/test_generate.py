"""outrider generate: text, documents, many prompts, and refusals that say what to do."""

import io
import json
import os
import struct
import sys
from pathlib import Path

import gguf
import pytest

PROMPT = "def add(left, right):"
FIELDS = ["text", "token_ids", "finish_reason", "usage", "speculation", "timing"]


def document(outcome):
    status, out, err = outcome
    assert status == 0, err
    assert out.endswith("}\n")
    assert out.count("\n") == 1
    return json.loads(out)


def test_text_goes_to_stdout_and_the_account_to_stderr(outrider, models):
    status, out, err = outrider("generate", PROMPT, "--target", models["target"], "--max-tokens", 12)
    answer = document(outrider("generate", PROMPT, "--target", models["target"], "--max-tokens", 12, "--json"))
    assert status == 0
    assert out in (answer["text"], answer["text"] + "\n")
    assert "\x1b" not in out
    assert err.startswith("12 tokens, ")
    assert err.endswith("speculation off: no draft was given\n")
    assert err.count("\n") == 1


def test_the_document_has_the_promised_fields_in_order(outrider, models):
    answer = document(outrider("generate", PROMPT, "--target", models["target"], "--max-tokens", 9, "--json"))
    assert list(answer) == FIELDS
    assert answer["usage"]["completion_tokens"] == len(answer["token_ids"]) == 9
    assert set(answer["timing"]) == {"load_s", "prefill_s", "decode_s", "tokens_per_s"}


@pytest.mark.parametrize("draft", [("draft", 1), ("draft", 4), ("draft", 8), ("target", 5), ("ngram", 10), ("auto", 3)])
def test_no_draft_changes_a_token(outrider, models, draft):
    name, k = draft
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 60, "--json")
    plain = document(outrider(*args))
    answer = document(outrider(*args, "--draft", models.get(name, name), "--num-speculative-tokens", k))
    assert answer["token_ids"] == plain["token_ids"]
    assert answer["text"] == plain["text"]
    assert answer["speculation"]["active"]
    lookup = name in ("ngram", "auto")
    assert answer["speculation"]["drafter"] == ("ngram" if lookup else f"{name} (int4 weights) + ngram")


def test_a_seed_makes_sampled_text_reproducible_with_any_draft(outrider, models):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 30, "--json", "--temperature", 0.9)
    texts = {
        document(outrider(*args, "--seed", 5, "--draft", draft))["text"] for draft in ("none", "ngram", models["draft"])
    }
    assert len(texts) == 1
    assert document(outrider(*args, "--seed", 6))["text"] not in texts


def test_sampling_flags_reach_the_sampler(outrider, models):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 20, "--json")
    greedy = document(outrider(*args))["token_ids"]
    for flags in (("--top-k", 1), ("--top-p", 1e-9), ("--min-p", 1.0)):
        assert document(outrider(*args, "--temperature", 2.0, *flags))["token_ids"] == greedy


def test_a_stop_string_ends_the_text(outrider, models):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 40, "--json")
    text = document(outrider(*args))["text"]
    stop = text[5:7]
    answer = document(outrider(*args, "--stop", "never in the text", "--stop", stop))
    assert answer["text"] == text[: text.index(stop)]
    assert answer["finish_reason"] == "stop"


def test_the_chat_template_is_on_unless_told_otherwise(outrider, models):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 1, "--json")
    with_template = document(outrider(*args))["usage"]["prompt_tokens"]
    assert document(outrider(*args, "--no-chat"))["usage"]["prompt_tokens"] < with_template


def test_a_prompt_may_come_from_stdin(outrider, models, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PROMPT.encode())))
    args = ("--target", models["target"], "--max-tokens", 5, "--json")
    assert document(outrider("generate", "-", *args)) | {"timing": 0} == document(
        outrider("generate", PROMPT, *args)
    ) | {"timing": 0}


def test_many_prompts_give_one_document(outrider, models, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        '{"id": "a", "family": "code", "prompt": "one"}\n\n{"prompt": "zwei é", "more": 1}\n{"id": 7, "prompt": "x"}'
    )
    args = ("generate", "--prompts", file, "--target", models["target"], "--draft", "ngram", "--max-tokens", 8)
    status, out, err = outrider(*args, "--json")
    results = document((status, out, err))["results"]
    assert [(one["id"], one["family"]) for one in results] == [("a", "code"), ("3", None), ("7", None)]
    assert list(results[0]) == ["id", "family", *FIELDS]
    assert [line.split(":")[0] for line in err.splitlines()] == ["1/3 a", "2/3 3", "3/3 7"]
    alone = document(outrider("generate", "one", *args[3:], "--json"))
    assert results[0]["token_ids"] == alone["token_ids"]


def test_a_byte_order_mark_and_null_for_an_id_are_nothing(outrider, models, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"id": null, "family": null, "prompt": "one"}')
    args = ("generate", "--prompts", file, "--target", models["target"], "--max-tokens", 3, "--json")
    status, out, err = outrider(*args)
    [result] = document((status, out, err))["results"]
    assert (result["id"], result["family"]) == ("1", None)
    assert err.startswith("1/1 1: 3 tokens")


def refusal(outcome):
    status, out, err = outcome
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("outrider: ")
    return err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("hi", "--temperature", "-1"), "temperature is -1.0; it must be"),
        (("hi", "--temperature", "nan"), "temperature is nan"),
        (("hi", "--temperature", "warm"), "'--temperature': 'warm' is not a number"),
        (("hi", "--max-tokens", "1.5"), "'--max-tokens': '1.5' is not a whole number"),
        (("hi", "--max-tokens", ""), "'--max-tokens': '' is not a whole number"),
        (("hi", "--seed", "1e3"), "'--seed': '1e3' is not a whole number"),
        (("hi", "--stop", "a\udcff"), "--stop holds the lone surrogate U+DCFF at position 1"),
        (("hi", "--draft", ""), "--draft is empty"),
        (("hi", "--draft", "no/such.gguf"), "draft: there is no file no/such.gguf"),
        (("hi", "--target", ""), "--target is empty"),
        (("hi", "--max-tokens", "0"), "--max-tokens is 0; it must be"),
        (("hi", "--max-tokens", "-5"), "--max-tokens is -5; it must be"),
        (("hi", "--top-p", "0"), "--top-p is 0.0; it must be"),
        (("hi", "--top-k", "0"), "--top-k is 0; it must be a whole number at least 1; the default keeps every token"),
        (("hi", "--min-p", "2"), "--min-p is 2.0; it must be"),
        (("hi", "--seed", "-1"), "--seed is -1; it must be"),
        (("hi", "--stop", ""), "--stop is empty; give the text"),
        (("hi", "--num-speculative-tokens", "-1"), "--num-speculative-tokens is -1; it must be from 0 to 64"),
        (("hi", "--num-speculative-tokens", "1000"), "--num-speculative-tokens is 1000; it must be from 0 to 64"),
        (("hi", "--threads", "0"), "--threads is 0; it must be from 1 to 256"),
        (("hi", "--threads", "9999999999"), "--threads is 9999999999; it must be from 1 to 256"),
        (("hi", "--ctx-size", "0"), "--ctx-size is 0; it must be at least 2"),
        (("hi", "--ctx-size", "257"), "--ctx-size is 257; target takes from 2 to 256 tokens"),
        (("hi", "--rule", "lossy"), "--rule is 'lossy'; it must be one of auto, token, block, coupled"),
        (("hi", "--draft", "ngarm"), "drafters that need no model: ngram"),
        (("hi", "--temprature", "1"), "; see outrider generate --help"),
        (("", ), "the prompt is empty"),
        ((), "give either a PROMPT or --prompts FILE"),
        (("hi", "--prompts", "x.jsonl"), "give either a PROMPT or --prompts FILE"),
        (("--prompts", "no_such_file.jsonl"), "no_such_file.jsonl cannot be read"),
        (("x " * 300,), "and the context holds 256"),
        (("hi \udcff",), "the prompt holds the lone surrogate U+DCFF at position 3"),
    ],
)  # fmt: skip
def test_bad_usage_is_refused_in_one_line(outrider, models, args, message):
    assert message in refusal(outrider("generate", "--target", models["target"], *args))


def test_a_target_is_needed_and_must_exist(outrider, models, tmp_path):
    assert "no --target given" in refusal(outrider("generate", "hi"))
    assert "there is no file" in refusal(outrider("generate", "hi", "--target", "no/such.gguf"))
    assert "unknown model 'smollm2-135'; did you mean" in refusal(outrider("generate", "hi", "--target", "smollm2-135"))
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(60))
    assert "broken.gguf" in refusal(outrider("generate", "hi", "--target", broken))


def test_a_draft_with_another_vocabulary_changes_nothing(outrider, models):
    args = ("generate", "def add(", "--target", models["target"], "--max-tokens", "20", "--json")
    plain, drafted = (json.loads(outrider(*args, *more)[1]) for more in ([], ["--draft", models["other"]]))
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["speculation"]["num_draft_tokens"] > 0


def test_a_draft_with_hardly_a_token_in_common_is_refused(outrider, models):
    args = ("generate", "hi", "--target", models["target"], "--draft", models["proteins"])
    assert "proteins as a draft for target: it is refused: only" in refusal(outrider(*args))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no prompts"),
        (b'{"prompt": "fine"}\n{"prompt": ', "line 2 is not JSON"),
        (b'{"text": "hi"}', 'line 1 has no text in the field "prompt"'),
        (b'["hi"]', 'line 1 has no text in the field "prompt"'),
        (b'{"prompt": 5}', 'line 1 has no text in the field "prompt"'),
        (b'{"prompt": "hi", "id": [1]}', 'line 1 has [1] for "id"; it must be text, a whole number or null'),
        (b'{"prompt": "hi", "id": true}', 'has true for "id"'),
        (b'{"prompt": "hi", "family": 1.5}', 'has 1.5 for "family"'),
        (b'{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "x"}', "line 2 has the id 'x', and so has line 1"),
        (b'{"prompt": "a", "id": 2}\n{"prompt": "b"}', "line 2 has the id '2', and so has line 1"),
        (b'{"prompt": "hi"}\n{"prompt": "\xff"}', "line 2 is not UTF-8 (byte 0xff); save it as UTF-8"),
        ('{"prompt": "hi"}'.encode("utf-16"), "line 1 is not UTF-8 (byte 0xff); save it as UTF-8"),
        (b'{"prompt": hi}', 'line 1 is not JSON: Expecting value at column 12; write {"prompt": "..."}'),
        pytest.param(b'{"prompt": "hi", "id": ' + b"9" * 5000 + b"}", "line 1", id="a number of 5000 digits"),
        (b'{"id": "only", "prompt": ""}', "prompt only: the prompt is empty"),
        (b'{"id": "a\\u001b[2J", "prompt": ""}', "prompt a\ufffd[2J: the prompt is empty"),
        pytest.param(b"[" * 100_000, "line 1 is not JSON", id="deeply nested"),
        (b'{"id": "a", "prompt": "fine"}\n{"id": "b", "prompt": ""}', "prompt b: the prompt is empty"),
    ],
)
def test_a_bad_file_of_prompts_is_refused_before_anything_is_generated(outrider, models, tmp_path, content, message):
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    assert message in refusal(outrider("generate", "--prompts", file, "--target", models["target"]))


@pytest.fixture(scope="module")
def broken(models, tmp_path_factory):
    """Return a copy of the target whose last norm has a weight that is no number."""
    reader = gguf.GGUFReader(models["target"])
    offset = next(int(tensor.data_offset) for tensor in reader.tensors if tensor.name == "output_norm.weight")
    data = bytearray(Path(models["target"]).read_bytes())
    data[offset : offset + 4] = struct.pack("<f", float("nan"))
    path = tmp_path_factory.mktemp("broken") / "broken.gguf"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    "flags", [(), ("--temperature", 0.8), ("--top-k", 5, "--temperature", 1), ("--draft", "ngram")]
)
def test_a_target_that_gives_no_numbers_is_named(outrider, broken, flags):
    for as_json in ((), ("--json",)):
        err = refusal(outrider("generate", PROMPT, "--target", broken, *flags, *as_json))
        assert err.startswith(f"outrider: the target {broken} cannot go on: row 0 of the logits has nan")
        assert err.endswith("; fetch or convert it again, or use another\n")


def test_a_prompt_that_the_target_cannot_answer_ends_no_other(outrider, broken, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"id": "a", "prompt": "one"}\n{"id": "b", "prompt": "two"}\n')
    status, out, err = outrider("generate", "--prompts", file, "--target", broken, "--json")
    assert status == 2
    assert [line.partition(" row 0")[0] for line in err.splitlines()] == [
        f"1/2 a: the target {broken} cannot go on:",
        f"2/2 b: the target {broken} cannot go on:",
    ]
    results = json.loads(out)["results"]
    assert [(one["id"], one["finish_reason"], one["token_ids"]) for one in results] == [
        ("a", "error", []),
        ("b", "error", []),
    ]
    assert all("has nan" in one["error"] for one in results)


def test_a_draft_that_gives_no_numbers_costs_its_drafts_and_is_named(outrider, models, broken):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 12)
    plain = document(outrider(*args, "--json"))
    assert document(outrider(*args, "--draft", broken, "--json"))["token_ids"] == plain["token_ids"]
    answer = document(outrider(*args, "--draft", f"{broken},none", "--json"))
    assert answer["token_ids"] == plain["token_ids"]
    assert "but a draft broke off: row 0 of the logits has nan" in answer["speculation"]["reason"]
    status, _, err = outrider(*args, "--draft", f"{broken},none")
    assert status == 0
    assert "broken (int4 weights), which proposed nothing: this was plain decoding, but a draft broke off" in err


def test_a_model_alone_and_several_drafters_are_named_with_commas(outrider, models):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 30, "--json")
    plain = document(outrider(*args))
    for draft, name in [
        (f"{models['draft']},none", "draft (int4 weights)"),
        (f"ngram, {models['draft']},{models['target']}", "ngram + draft (int4 weights) + target (int4 weights)"),
    ]:
        answer = document(outrider(*args, "--draft", draft))
        assert answer["token_ids"] == plain["token_ids"]
        assert answer["speculation"]["drafter"] == name
    assert "draft:" in refusal(outrider(*args, "--draft", f"{models['draft']},nothing"))


def test_a_prediction_is_drafted_from_and_counted(outrider, models, tmp_path):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 40, "--json")
    plain = document(outrider(*args))
    file = tmp_path / "expected.txt"
    file.write_text(plain["text"])
    answer = document(outrider(*args, "--draft", "ngram", "--prediction", file))
    assert answer["token_ids"] == plain["token_ids"]
    done = answer["speculation"]
    counts = done["sources"]["prediction"]
    assert done["accepted_prediction_tokens"] == counts["num_accepted_tokens"]
    assert done["rejected_prediction_tokens"] == counts["num_draft_tokens"] - counts["num_accepted_tokens"]


def test_a_prediction_needs_one_prompt_and_a_draft(outrider, models, tmp_path):
    file = tmp_path / "expected.txt"
    file.write_text("text")
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 4)
    unheard = outrider("generate", PROMPT, "--target", "no/such.gguf", "--prediction", file)  # before any model is read
    assert "--prediction is given, but nothing drafts from it; add --draft ngram" in refusal(unheard)
    assert "cannot be read" in refusal(outrider(*args, "--draft", "ngram", "--prediction", tmp_path / "none"))
    several = ("generate", "--prompts", file, "--target", models["target"])
    assert "--prediction is for one PROMPT" in refusal(outrider(*several, "--prediction", file))


def test_a_store_is_kept_and_what_is_wrong_with_it_is_said(outrider, models, tmp_path):
    args = ("generate", PROMPT, "--target", models["target"], "--max-tokens", 40, "--json", "--draft", "ngram")
    plain = document(outrider(*args))
    directory = tmp_path / "kept"
    first, second = (document(outrider(*args, "--store", directory)) for _ in range(2))
    assert plain["token_ids"] == first["token_ids"] == second["token_ids"]
    assert "store" in second["speculation"]["sources"]
    (file,) = directory.iterdir()
    file.write_bytes(b"something else")
    third = document(outrider(*args, "--store", directory))
    assert third["token_ids"] == plain["token_ids"]
    assert "is no store of past texts" in third["speculation"]["reason"]
    for draft in ("ngram", "none"):
        assert "is no store of past texts" in outrider(*args, "--store", directory, "--draft", draft)[2]
    assert "--store is empty" in refusal(outrider(*args, "--store", ""))


def test_the_version_is_told(outrider):
    status, out, err = outrider("--version")
    assert (status, err) == (0, "")
    assert out.startswith("outrider ")
    assert len(out.split()) == 2


def test_flags_that_change_nothing_at_temperature_0_are_named(outrider, models):
    command = ("generate", "ab", "--target", models["target"], "--max-tokens", "2", "--top-p", "0.5", "--seed", "1")
    _, _, err = outrider(*command)
    assert "--top-p changes nothing at temperature 0" in err
    assert "--seed changes nothing at temperature 0" in err
    assert "changes nothing" not in outrider(*command, "--temperature", "1")[2]


def test_a_misspelt_drafter_gets_a_hint(outrider, models):
    _, _, err = outrider("generate", "ab", "--target", models["target"], "--draft", "ngrm")
    assert "did you mean ngram? " in err


def test_an_error_about_the_context_names_its_flag(outrider, models):
    _, _, err = outrider("generate", "x " * 300, "--target", models["target"], "--ctx-size", "100")
    assert "and the context holds 100" in err
    assert "raise --ctx-size, up to 256" in err


@pytest.mark.parametrize("option", ["--prompts", "--prediction"])
def test_files_without_an_end_are_refused_before_they_are_opened(outrider, models, tmp_path, option):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path / "pipe", "/dev/zero"):
        prompt = () if option == "--prompts" else ("hi", "--draft", "ngram")
        problem = refusal(outrider("generate", *prompt, "--target", models["target"], option, name))
        assert f"{name} is no ordinary file" in problem
        assert problem.rstrip().endswith("pipe it into -, standard input")


def test_a_stream_without_an_end_is_refused(outrider, models, monkeypatch):
    monkeypatch.setattr("outrider.cli.prompts._MAX_BYTES", 1 << 20)
    with Path("/dev/zero").open() as endless:
        monkeypatch.setattr(sys, "stdin", endless)
        problem = refusal(outrider("generate", "-", "--target", models["target"]))
    assert "standard input holds more than 1 MiB" in problem
