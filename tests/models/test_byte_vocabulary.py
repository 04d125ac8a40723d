"""Any bytes can be spelled in any vocabulary, as its tokenizer would where it can."""

import random

import pytest
from small_vocabularies import BYTES, byte_level, sentencepiece
from texts import HARD_TEXTS

from outrider.models.byte_vocabulary import ByteVocabulary
from outrider.models.pre_tokenizers import PRE_TOKENIZERS

WORDS = ["th", "the", " t", " th", " the", "qu", "ck", "    ", "\n\n", "é", "日", "日本", "🙂", "12", "a b", "<|", "|>"]
VOCABULARIES = {
    "byte-level": byte_level([*BYTES, *(word for word in WORDS if word != "a b")], controls=["<|im_end|>"]),
    "byte-level that normalises": byte_level([*BYTES, "é", "e\u0301"], nfc=True),
    "byte-level with a rule": byte_level(
        [*BYTES, "th", "the", " t", "\n\n"], rule=PRE_TOKENIZERS["qwen2"].build(), controls=["<|im_end|>"]
    ),
    "SentencePiece": sentencepiece([*"abcdefghijklmnopqrstuvwxyz .\né日本", "th", "the", " the", "a b"]),
    "SentencePiece without a space in front": sentencepiece([*"abcdefghij kt", " t", "th", "the"], adds_space=False),
}


def pieces_of_everything(rng):
    pool = [
        "the quick",
        " the",
        "  ",
        "\n    ",
        "\t",
        "日本語",
        "🙂",
        "👨‍👩‍👧",
        "e\u0301",
        "<|im_end|>",
        "<0x41>",
        "▁",
        "Ġ",
    ]
    parts = [rng.choice(pool).encode() if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 4)) for _ in range(20)]
    return b"".join(parts)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_what_is_spelled_is_said(name):
    vocabulary = ByteVocabulary(VOCABULARIES[name], VOCABULARIES[name].vocab_size)
    rng = random.Random(1)
    for data in [*(text.encode() for text in HARD_TEXTS), *(pieces_of_everything(rng) for _ in range(100))]:
        ids = vocabulary.encode(data)
        assert b"".join(vocabulary.token_bytes[token_id] for token_id in ids) == data


def test_text_is_cut_as_the_tokenizer_cuts_it():
    tokenizer = VOCABULARIES["byte-level with a rule"]
    vocabulary = ByteVocabulary(tokenizer, tokenizer.vocab_size)
    for text in HARD_TEXTS:
        assert vocabulary.encode(text.encode()) == tokenizer.encode(text)


def test_a_text_goes_on_without_the_space_that_begins_one():
    tokenizer = VOCABULARIES["SentencePiece"]
    vocabulary = ByteVocabulary(tokenizer, tokenizer.vocab_size)
    assert [tokenizer.pieces[i] for i in tokenizer.encode("the")] == ["▁the"]
    assert [tokenizer.pieces[i] for i in vocabulary.encode(b"the the")] == ["the", "▁the"]
    assert [tokenizer.pieces[i] for i in vocabulary.encode(b" the")] == ["▁the"]
    assert [tokenizer.pieces[i] for i in vocabulary.encode(b"\nthe")] == ["\n", "the"]


def test_bytes_that_no_token_has_are_left_out():
    tokenizer = byte_level(["a", "b", "ab"])
    vocabulary = ByteVocabulary(tokenizer, 3)
    assert vocabulary.encode(b"xab\xffba") == [2, 1, 0]
    assert ByteVocabulary(byte_level([], controls=["<s>"]), 1).encode(b"ab") == []


def test_an_ordinary_token_speaks_for_its_bytes_and_ids_beyond_the_size_are_not_used():
    tokenizer = sentencepiece(["b", "ab"])
    assert ByteVocabulary(tokenizer, tokenizer.vocab_size).ids[b"b"] == 0
    lower = byte_level(["a", "b", "ab"])
    assert ByteVocabulary(lower, 2).encode(b"ab") == [0, 1]


def test_a_long_text_that_the_tokenizer_changes_is_spelled_in_steps_that_grow_with_it():
    tokenizer = VOCABULARIES["byte-level that normalises"]
    vocabulary = ByteVocabulary(tokenizer, tokenizer.vocab_size)
    text = "plain words " * 500 + "e\u0301 " + "more words " * 500
    ids = vocabulary.encode(text.encode())
    assert b"".join(vocabulary.token_bytes[token_id] for token_id in ids) == text.encode()
