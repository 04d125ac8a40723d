"""Which tokens a compressed draft keeps, and what cannot be asked of it."""

from types import SimpleNamespace

import pytest

from outrider.drafters.compression import DraftOptions, by_frequency, describe
from outrider.errors import UsageError
from outrider.models.tokenizer import TokenKind

PIECES = ["<s>", "</s>", "<0x41>", "▁t", "he", "▁the", "▁", "é", "e", "<pad>"]
KINDS = [
    *(TokenKind.CONTROL, TokenKind.CONTROL, TokenKind.BYTE, *[TokenKind.NORMAL] * 6, TokenKind.UNUSED),
]


def tokenizer(ids_of_text=()):
    def encode(text, *, add_special):
        assert not add_special
        return list(ids_of_text)

    return SimpleNamespace(pieces=PIECES, kinds=KINDS, eos_ids=frozenset([1]), encode=encode)


def test_without_a_text_the_order_is_that_of_the_merges_after_single_letters():
    assert by_frequency(tokenizer()) == [6, 8, 2, 3, 4, 5, 7]


def test_with_a_text_its_counts_come_first_and_control_tokens_never_count():
    assert by_frequency(tokenizer([7, 7, 4, 0, 0, 0]), "text") == [7, 4, 6, 8, 2, 3, 5]


def test_what_ends_an_answer_is_kept_whatever_the_number():
    assert DraftOptions(vocab=1).head_tokens(tokenizer(), 10) == [1, 6]
    assert DraftOptions(vocab=2, text="t").head_tokens(tokenizer([5, 4, 5]), 10) == [1, 4, 5]


@pytest.mark.parametrize("vocab", [None, 7, 8, 10**9])
def test_a_head_that_keeps_every_token_is_not_cut(vocab):
    assert DraftOptions(vocab=vocab).head_tokens(tokenizer(), 10) is None


def test_tokens_without_a_row_are_left_out():
    assert DraftOptions(vocab=3).head_tokens(tokenizer(), 7) == [1, 2, 6]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"vocab": 0}, "vocab is 0"),
        ({"vocab": -1}, "vocab is -1"),
        ({"vocab": 1.5}, "vocab is 1.5"),
        ({"vocab": True}, "vocab is True"),
        ({"vocab": "many"}, "vocab is 'many'"),
        ({"weights": "int3"}, "weights is 'int3'"),
        ({"weights": "bfloat16"}, "weights is 'bfloat16'"),
        ({"weights": None}, "weights is None"),
        ({"text": b"bytes"}, "text is"),
        ({"window": 127}, "window is 127"),
        ({"window": 0}, "window is 0"),
        ({"window": 2**24 + 1}, "window is 16777217"),
        ({"window": True}, "window is True"),
    ],
)
def test_options_that_cannot_be(options, named):
    with pytest.raises(UsageError, match=named):
        DraftOptions(**options)


def test_what_was_done_is_said():
    assert describe("file", None, None) == ""
    assert describe("int4", None, 256) == "int4 weights, window of 256"
    assert describe("int4", [1, 2], None) == "int4 weights, 2 tokens"
