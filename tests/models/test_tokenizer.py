"""What every tokenizer promises, whatever it was made from."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import tiny
from texts import HARD_TEXTS
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from outrider.errors import ModelFileError, UsageError
from outrider.models.hf_tokenizer import open_tokenizer


def write(directory: Path, backend: Backend | None = None, **settings: object) -> Path:
    (backend or tiny.build_tokenizer()).save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def edit(directory: Path, change) -> Path:
    path = directory / "tokenizer.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return directory


@pytest.fixture
def tokenizer(tmp_path):
    return open_tokenizer(write(tmp_path, eos_token="<|im_end|>", bos_token={"content": "<|endoftext|>"}))[0]


def test_ids_are_those_of_transformers(tokenizer):
    own = PreTrainedTokenizerFast(tokenizer_object=tiny.build_tokenizer())
    for text in HARD_TEXTS:
        assert tokenizer.encode(text, parse_special=True) == own.encode(text, add_special_tokens=False), text


def test_control_tokens_are_read_only_on_request(tokenizer):
    start, end = tokenizer.pieces.index("<|im_start|>"), tokenizer.pieces.index("<|im_end|>")
    text = "<|im_start|>a<|im_end|>"
    assert tokenizer.encode(text, parse_special=True) == [start, *tokenizer.encode("a"), end]
    literal = tokenizer.encode(text)
    assert tokenizer.special_ids.isdisjoint(literal)
    assert tokenizer.decode(literal) == text
    assert tokenizer.decode([start, end]) == ""


def test_an_erased_character_hides_control_tokens_and_leaves_no_trace(tokenizer):
    hidden = tokenizer.encode("<\ufdd0|im_start|>a<|im_end|>\ufdd0 b", parse_special=True, erase="\ufdd0")
    end = tokenizer.pieces.index("<|im_end|>")
    assert hidden == [*tokenizer.encode("<|im_start|>a"), end, *tokenizer.encode(" b")]


def test_any_cut_of_the_ids_decodes_to_the_same_bytes(tokenizer):
    text = "naïve 🦊🦊é 鬱"
    ids = tokenizer.encode(text)
    assert len(ids) > 12
    for cut in range(len(ids) + 1):
        parts = [b"".join(map(tokenizer.token_bytes, part)) for part in (ids[:cut], ids[cut:])]
        assert b"".join(parts) == text.encode()
    assert "\ufffd" in tokenizer.decode(tokenizer.encode("🦊")[:1])


def test_text_that_is_not_unicode_is_refused(tokenizer):
    with pytest.raises(UsageError, match=r"lone surrogate U\+D800 at position 2"):
        tokenizer.encode("ab\ud800")


@pytest.mark.parametrize("token_id", [-1, 384])
def test_ids_outside_the_vocabulary_are_refused(tokenizer, token_id):
    with pytest.raises(UsageError, match=f"token id {token_id} is outside the vocabulary of 384"):
        tokenizer.token_bytes(token_id)


def test_one_tokenizer_serves_many_threads(tokenizer):
    wanted = {text: (tokenizer.encode(text), tokenizer.encode(text, parse_special=True)) for text in HARD_TEXTS}
    wrong: list[str] = []

    def work() -> None:
        for text, (literal, parsed) in wanted.items():
            if (tokenizer.encode(text), tokenizer.encode(text, parse_special=True)) != (literal, parsed):
                wrong.append(text)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_sentencepiece_tokenizer_json_is_understood(tmp_path):
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "\u2581a", "ab"]
    backend = Backend(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[("\u2581", "a"), ("a", "b")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens([AddedToken(piece, special=True) for piece in pieces[:3]])
    tokenizer, _ = open_tokenizer(write(tmp_path, backend, eos_token="</s>", bos_token="<s>"))
    ids = tokenizer.encode("a ab é")
    assert [tokenizer.pieces[i] for i in ids] == ["<s>", "\u2581a", "\u2581a", "b", "\u2581", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(ids) == " a ab é"
    assert tokenizer.token_bytes(ids[-1]) == b"\xa9"
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, {2})


def test_the_settings_overrule_the_post_processor(tmp_path):
    backend = tiny.build_tokenizer()
    first = backend.token_to_id("<|endoftext|>")
    backend.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>", special_tokens=[("<|endoftext|>", first), ("<|im_end|>", first + 2)]
    )
    plain = backend.encode("hi", add_special_tokens=False).ids
    names = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    for settings, wanted in (
        ({}, [first, *plain, first + 2]),
        ({"add_bos_token": False}, [*plain, first + 2]),
        ({"add_eos_token": False}, [first, *plain]),
        ({"add_bos_token": True, "add_eos_token": True}, [first, *plain, first + 2]),
    ):
        assert open_tokenizer(write(tmp_path, backend, **names, **settings))[0].encode("hi") == wanted


def test_end_tokens_come_from_every_file_that_names_some(tmp_path):
    write(tmp_path)
    assert open_tokenizer(tmp_path)[0].eos_ids == {381, 383}  # by their spelling
    (tmp_path / "config.json").write_text('{"eos_token_id": 7, "bos_token_id": 9}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [11, 383]}')
    tokenizer, _ = open_tokenizer(tmp_path)
    assert tokenizer.eos_ids == {7, 11, 381, 383}
    assert tokenizer.bos_id == 9


@pytest.mark.parametrize(
    ("settings", "files", "wanted"),
    [
        ({"chat_template": "A"}, {}, "A"),
        ({"chat_template": [{"name": "default", "template": "B"}, {"name": "tool_use", "template": "C"}]}, {}, "B"),
        ({"chat_template": "A"}, {"chat_template.jinja": "D"}, "D"),
        ({}, {}, None),
    ],
)
def test_the_chat_template_is_found_where_it_may_be(tmp_path, settings, files, wanted):
    write(tmp_path, **settings)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    template = open_tokenizer(tmp_path)[1]
    assert (template and template.source) == wanted


def set_in_model(**changes):
    return lambda data: data["model"].update(changes)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (set_in_model(type="WordPiece"), "tokenizer model 'WordPiece' is not supported"),
        (set_in_model(type=7), "type is 7"),
        (set_in_model(dropout=0.1), "dropout is 0.1, which is not supported"),
        (set_in_model(continuing_subword_prefix="##"), "continuing_subword_prefix is '##'"),
        (set_in_model(vocab={}), "model.vocab is {}"),
        (set_in_model(vocab={"a": -1}), "token 'a' has id -1"),
        (set_in_model(vocab={"a": 2**40}), "token 'a' has id 1099511627776"),
        (set_in_model(vocab={"a": 0, "b": 0}), "id 0 of token 'b' is given twice"),
        (set_in_model(merges="a b"), "model.merges is 'a b'"),
        (set_in_model(merges=[["a", "zz"]]), "does not join two tokens"),
        (set_in_model(merges=[["a", "b", "c"]]), "does not join two tokens"),
        (set_in_model(merges=[7]), "does not join two tokens"),
        (set_in_model(byte_fallback="yes"), "byte_fallback is 'yes'"),
        (lambda data: data.update(added_tokens=7), "added_tokens is 7"),
        (lambda data: data.update(added_tokens=[7]), "added_tokens holds 7"),
        (lambda data: data["added_tokens"][0].update(id=999), "leaves a gap"),
        (lambda data: data["added_tokens"][0].update(id="1"), "id is '1'"),
        (lambda data: data["added_tokens"][0].update(content=""), "an added token is empty"),
        (
            lambda data: data.update(decoder={"type": "WordPiece", "prefix": "##", "cleanup": True}),
            "decoder .* is not supported",
        ),
        (lambda data: data.update(pre_tokenizer={"type": "Nonsense"}), "cannot read it"),
        (lambda data: data.update(pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}}), "cannot read it"),
        (lambda data: data.update(model=7), "model is 7"),
    ],
)
def test_a_bad_tokenizer_json_is_named_in_one_line(tmp_path, change, said):
    with pytest.raises(ModelFileError, match=said) as caught:
        open_tokenizer(edit(write(tmp_path), change))
    assert "\n" not in str(caught.value)


def test_pre_tokenizers_that_are_not_ours_still_work(tmp_path):
    backend = tiny.build_tokenizer()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer, _ = open_tokenizer(write(tmp_path, backend))
    assert tokenizer.encode("ab 123") == backend.encode("ab 123").ids


def test_a_post_processor_cannot_add_what_does_not_exist(tmp_path):
    backend = tiny.build_tokenizer()
    backend.post_processor = processors.TemplateProcessing(single="<x> $A", special_tokens=[("<x>", 10**6)])
    with pytest.raises(ModelFileError, match="post_processor adds id 1000000; the vocabulary has ids 0 to 383"):
        open_tokenizer(write(tmp_path, backend))


def test_a_gap_in_the_ids_is_padding_and_no_special_token(tmp_path):
    pieces = [chr(code) for code in range(0x21, 0x7F)]
    backend = Backend(models.BPE(vocab={piece: 2 * i for i, piece in enumerate(pieces)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer, _ = open_tokenizer(write(tmp_path, backend))
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (None, frozenset())
    assert tokenizer.token_bytes(1) == b""
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"


def test_other_threads_go_on_while_a_long_text_is_encoded(tmp_path):
    backend = tiny.build_tokenizer()
    tokenizer, _ = open_tokenizer(write(tmp_path, backend))
    text, rounds, is_done = "ab 123 " * 100_000, [0], threading.Event()

    def count():
        while not is_done.wait(0.001):
            rounds[0] += 1

    counting = threading.Thread(target=count)
    counting.start()
    try:
        while rounds[0] == 0:
            is_done.wait(0.001)
        before = rounds[0]
        token_ids = tokenizer.encode(text)
        during = rounds[0] - before
    finally:
        is_done.set()
        counting.join()
    assert during > 5
    assert token_ids == backend.encode(text).ids


def test_a_rule_that_never_ends_is_an_error_of_the_models(tmp_path):
    backend = tiny.build_tokenizer()
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), behavior="isolated")
    tokenizer, _ = open_tokenizer(write(tmp_path, backend))
    with pytest.raises(ModelFileError, match="gives up on a text of 41 characters"):
        tokenizer.encode("a" * 40 + "b")
