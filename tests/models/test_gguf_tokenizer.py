"""Tokenizers rebuilt from GGUF metadata, against llama.cpp's answers and the models' own tokenizers."""

from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import tiny
from texts import HARD_TEXTS
from transformers import Qwen2Tokenizer

from outrider.errors import ModelFileError
from outrider.models.fields import Fields
from outrider.models.gguf_tokenizer import build_tokenizer
from outrider.models.tokenizer import Tokenizer, TokenKind

GOLDEN = json.loads((Path(__file__).parent / "golden" / "llama_cpp.json").read_text())
VARIANTS = [name for name in GOLDEN if "metadata" in GOLDEN[name]]


def build(metadata: dict[str, object]) -> Tokenizer:
    """Return the tokenizer of metadata as they come out of JSON."""
    kinds = {"tokenizer.ggml.token_type": np.int32, "tokenizer.ggml.scores": np.float32}
    values = {key: np.array(value, kinds[key]) if key in kinds else value for key, value in metadata.items()}
    return build_tokenizer(Fields(values, Path("test.gguf")))


@pytest.mark.parametrize("name", VARIANTS)
def test_ids_are_llama_cpps(name):
    tokenizer = build(GOLDEN[name]["metadata"])
    for text, expected in zip(HARD_TEXTS, GOLDEN[name]["expected"], strict=True):
        if name == "qwen2" and not unicodedata.is_normalized("NFC", text):
            continue  # Qwen2's own tokenizer composes characters first; llama.cpp does not
        assert tokenizer.encode(text, add_special=False) == expected["literal"], text
        assert tokenizer.encode(text, parse_special=True) == expected["parsed"], text


def test_qwen2_composes_characters_as_its_own_tokenizer_does():
    metadata = GOLDEN["qwen2"]["metadata"]
    tokenizer = build(metadata)
    vocabulary = {piece: i for i, piece in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    own = Qwen2Tokenizer(vocab=vocabulary, merges=merges)
    for text in HARD_TEXTS:
        if "<|" not in text:
            assert tokenizer.encode(text) == own.encode(text, add_special_tokens=False), text


@pytest.mark.parametrize("name", VARIANTS)
def test_decoding_gives_the_text_back(name):
    tokenizer = build(GOLDEN[name]["metadata"])
    for text in HARD_TEXTS:
        ids = tokenizer.encode(text, add_special=False)
        wanted = unicodedata.normalize("NFC", text) if name == "qwen2" else text
        if name == "sentencepiece" and text:
            wanted = " " + text
        assert tokenizer.decode(ids) == wanted
        assert b"".join(map(tokenizer.token_bytes, ids)) == wanted.encode()


def train_sentencepiece(**settings: object) -> sentencepiece.SentencePieceProcessor:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in HARD_TEXTS * 2 if text.strip()]),
        model_writer=trained,
        model_type="bpe",
        vocab_size=700,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())


@pytest.mark.parametrize(("add_dummy_prefix", "byte_fallback"), [(True, True), (False, True), (True, False)])
def test_sentencepiece_ids_are_sentencepieces(add_dummy_prefix, byte_fallback):
    own = train_sentencepiece(byte_fallback=byte_fallback, add_dummy_prefix=add_dummy_prefix)
    ids = range(own.vocab_size())
    kinds = [6 if own.is_byte(i) else 3 if own.is_control(i) else 2 if own.is_unknown(i) else 1 for i in ids]
    tokenizer = build(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [own.id_to_piece(i) for i in ids],
            "tokenizer.ggml.scores": [own.get_score(i) for i in ids],
            "tokenizer.ggml.token_type": kinds,
            "tokenizer.ggml.unknown_token_id": own.unk_id(),
            "tokenizer.ggml.add_space_prefix": add_dummy_prefix,
        }
    )
    for text in HARD_TEXTS:
        assert tokenizer.encode(text, add_special=False) == own.encode(text), text


def test_runs_of_spaces_that_are_tokens_are_found_as_sentencepiece_does():
    """As in Gemma, whose converters spell them with plain spaces."""
    runs = ["\u2581" * n for n in range(2, 6)] + ["\n" * n for n in range(1, 4)] + ["<table>"]
    own = train_sentencepiece(byte_fallback=True, add_dummy_prefix=False, user_defined_symbols=runs)
    ids = range(own.vocab_size())
    pieces = [own.id_to_piece(i) for i in ids]
    kinds = [6 if own.is_byte(i) else 3 if own.is_control(i) else 2 if own.is_unknown(i) else 1 for i in ids]
    for run in runs:
        kinds[pieces.index(run)] = TokenKind.USER_DEFINED
    metadata = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [piece.replace("\u2581", " ") if piece in runs else piece for piece in pieces],
        "tokenizer.ggml.scores": [own.get_score(i) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.unknown_token_id": own.unk_id(),
        "tokenizer.ggml.add_space_prefix": False,
    }
    tokenizer = build(metadata)
    for text in (*HARD_TEXTS, "a<table>  b\n\n\n\n   c", "\u2581 \u2581x", "       ", "<table><table> <tab"):
        assert tokenizer.encode(text, add_special=False) == own.encode(text), text
        assert tokenizer.decode(own.encode(text)) == text.replace("\u2581", " ")


def test_a_sentencepiece_model_begins_texts_with_bos_unless_told_otherwise():
    metadata = GOLDEN["sentencepiece"]["metadata"]
    assert build(metadata).encode("a")[0] == metadata["tokenizer.ggml.bos_token_id"]
    told = build(metadata | {"tokenizer.ggml.add_bos_token": False, "tokenizer.ggml.add_eos_token": True})
    assert told.encode("a")[-1] == metadata["tokenizer.ggml.eos_token_id"]
    assert told.bos_id not in told.encode("a")


def test_every_end_token_counts_whatever_the_file_names():
    metadata = tiny.tokenizer_metadata(tiny.build_tokenizer())
    pieces = metadata["tokenizer.ggml.tokens"]
    named = {pieces.index("<|im_end|>"), pieces.index("<|endoftext|>")}
    assert build(metadata).eos_ids == named
    assert build(metadata | {"tokenizer.ggml.eot_token_id": 5}).eos_ids == named | {5}
    # A word of the text is no end token, whatever it is called.
    plain = {**metadata, "tokenizer.ggml.token_type": [1] * len(pieces)}
    assert build(plain).eos_ids == {pieces.index("<|im_end|>")}


def test_user_defined_tokens_are_matched_and_are_text():
    metadata = tiny.tokenizer_metadata(tiny.build_tokenizer())
    kinds = list(metadata["tokenizer.ggml.token_type"])
    pieces = [*metadata["tokenizer.ggml.tokens"], "<tool call>", "naïve"]
    tokenizer = build(
        {**metadata, "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": [*kinds, TokenKind.USER_DEFINED, 4]}
    )
    ids = tokenizer.encode("x<tool call>naïve", add_special=False)
    assert ids[1:] == [len(pieces) - 2, len(pieces) - 1]
    assert tokenizer.decode(ids) == "x<tool call>naïve"
    assert tokenizer.special_ids.isdisjoint(ids)


def test_padding_is_silent_and_does_not_count():
    metadata = tiny.tokenizer_metadata(tiny.build_tokenizer())
    pieces = [*metadata["tokenizer.ggml.tokens"], "[PAD384]", "", ""]
    kinds = [*metadata["tokenizer.ggml.token_type"], 5, 5, 5]
    tokenizer = build({**metadata, "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": kinds})
    assert (tokenizer.num_tokens, tokenizer.vocab_size) == (384, 387)
    assert tokenizer.token_bytes(384) == b""
    assert 384 not in tokenizer.encode("[PAD384]", parse_special=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tokenizer.ggml.scores": [0.0]}, "must hold 600 finite numbers"),
        ({"tokenizer.ggml.scores": [float("nan")] * 600}, "finite"),
        ({"tokenizer.ggml.scores": []}, "must hold 600 finite numbers"),
        ({"tokenizer.ggml.tokens": ["x" * 2000]}, "a token of 2000 characters; the limit is 1024"),
        ({"tokenizer.ggml.token_type": [6] * 600}, "token 0 is a byte spelled '<unk>'"),
        ({"tokenizer.ggml.add_space_prefix": 1}, "add_space_prefix is 1; it must be true or false"),
    ],
)
def test_bad_sentencepiece_metadata_is_named(changes, said):
    with pytest.raises(ModelFileError, match=said):
        build(GOLDEN["sentencepiece"]["metadata"] | changes)


def test_a_flood_of_control_tokens_is_refused():
    metadata = tiny.tokenizer_metadata(tiny.build_tokenizer())
    flood = [f"{number:06}{'x' * 1000}" for number in range(2200)]
    pieces = [*metadata["tokenizer.ggml.tokens"], *flood]
    kinds = [*metadata["tokenizer.ggml.token_type"], *[TokenKind.CONTROL] * len(flood)]
    with pytest.raises(ModelFileError, match="2203 added tokens have 2213235 characters, the limit is 2097152"):
        build({**metadata, "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": kinds})
