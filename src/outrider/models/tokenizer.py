"""Text to token ids and back, for every kind of vocabulary.

A token's *piece* is how the vocabulary spells it; its *bytes* are what it adds to the text. Byte-level vocabularies
spell bytes as printable characters, SentencePiece ones spell a space as U+2581 and rare bytes as ``<0xE2>``. Control
tokens, padding and the unknown token add nothing to the text.

Text is taken literally unless the caller says otherwise: a prompt that contains ``<|im_end|>`` gets the tokens of those
ten characters, never the control token. Only text that the caller vouches for is encoded with ``parse_special=True``.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Literal

import tokenizers
from tokenizers import AddedToken, normalizers

from outrider.errors import ModelFileError, UsageError
from outrider.models.fields import shown

Spelling = Literal["byte_level", "sentencepiece"]
_LONG = 8192  # characters: they take some ten milliseconds to encode


class TokenKind(IntEnum):
    """What a token is for; the numbers are GGUF's."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


MAX_TOKENS = 1 << 21
# Of all added tokens together. The tokenizers library takes some 100 bytes a character to find them in text, several
# times over; models with tens of thousands of added tokens stay below.
_MAX_ADDED_CHARACTERS = 1 << 21
# Control tokens that end a text or a turn, whatever else a file says: many files name only one of several.
# fmt: off
END_PIECES = frozenset({
    "</s>", "<eos>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>",
    "<end_of_turn>", "<EOT>",
})
# fmt: on
_SILENT = frozenset({TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.UNUSED})


def byte_level_alphabet() -> dict[str, int]:
    """Return the byte that each character of a byte-level vocabulary stands for.

    Printable bytes of Latin-1 stand for themselves, the others for U+0100 and up, in order (GPT-2's encoder).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF = byte_level_alphabet()


class SpecialSpellings:
    """Finds the spelling of control tokens in text.

    Attributes:
        single_characters: Those of one character, which nothing can break.
    """

    def __init__(self, pieces: Iterable[str]) -> None:
        # Without the pieces that begin with another one, at most one of them begins at any place: the last that does
        # not come after the text from there on.
        self._pieces: list[str] = []
        for piece in sorted(set(pieces)):
            if not (self._pieces and piece.startswith(self._pieces[-1])):
                self._pieces.append(piece)
        self.single_characters = frozenset(piece for piece in self._pieces if len(piece) == 1)
        self._longest = max(map(len, self._pieces), default=0)
        first = "".join(sorted({piece[0] for piece in self._pieces}))
        self._first = re.compile(f"[{re.escape(first)}]" if first else r"(?!)")

    def starts(self, text: str) -> Iterator[int]:
        """Yield where a control token starts, or the beginning of one with which the text ends, spaces aside or not."""
        ends = {len(text), len(text.rstrip())}
        for match in self._first.finditer(text):
            start = match.start()
            rest = text[start : start + self._longest]
            if self._begins_with_piece(rest) or any(self._begins_piece(text[start:end]) for end in ends):
                yield start

    def _begins_with_piece(self, rest: str) -> bool:
        index = bisect_right(self._pieces, rest)
        return index > 0 and rest.startswith(self._pieces[index - 1])

    def _begins_piece(self, tail: str) -> bool:
        if not 0 < len(tail) < self._longest:
            return False
        index = bisect_left(self._pieces, tail)
        return index < len(self._pieces) and self._pieces[index].startswith(tail)


class Tokenizer:
    """A vocabulary and how text is cut into it. Immutable, and safe to share among threads.

    Attributes:
        pieces: The spelling of every token, by id.
        kinds: The :class:`TokenKind` of every token, by id.
        bos_id: The token that begins a text, if the model has one.
        eos_ids: Every token that ends a text or a turn.
    """

    def __init__(  # noqa: PLR0913  (a vocabulary is that many facts)
        self,
        backend: tokenizers.Tokenizer,
        pieces: Sequence[str],
        kinds: Sequence[int],
        spelling: Spelling,
        *,
        bos_id: int | None,
        eos_ids: Iterable[int],
        prefix_ids: Sequence[int] = (),
        suffix_ids: Sequence[int] = (),
    ) -> None:
        """Wrap a tokenizer.

        Args:
            backend: Knows every control and user-defined token as an added token.
            pieces: ``[vocab_size]``.
            kinds: ``[vocab_size]``.
            spelling: How pieces spell bytes.
            bos_id: See the class.
            eos_ids: See the class.
            prefix_ids: What ``add_special`` puts before a text.
            suffix_ids: What ``add_special`` puts after a text.

        Raises:
            ModelFileError: The added tokens do not fit the vocabulary.
        """
        self.pieces = pieces
        self.kinds = kinds
        self.bos_id = bos_id
        self.eos_ids = frozenset(eos_ids)
        self._spelling = spelling
        self._parsing = backend
        self._literal = _sharing_model(backend, literal=True)
        self._prefix = list(prefix_ids)
        self._suffix = list(suffix_ids)

    @property
    def vocab_size(self) -> int:
        """How many ids there are, padding included."""
        return len(self.pieces)

    @cached_property
    def num_tokens(self) -> int:
        """One more than the highest id that is not padding."""
        for token_id in range(len(self.kinds) - 1, -1, -1):
            if self.kinds[token_id] != TokenKind.UNUSED:
                return token_id + 1
        return 0

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The control tokens: they steer the model and are no text."""
        return frozenset(token_id for token_id, kind in enumerate(self.kinds) if kind == TokenKind.CONTROL)

    @cached_property
    def special_spellings(self) -> SpecialSpellings:
        """How the tokens are spelled that text never stands for: control tokens, and the unknown token if it is one."""
        added = self._parsing.get_added_tokens_decoder().values()
        return SpecialSpellings(token.content for token in added if token.special)

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False, erase: str = "") -> list[int]:
        """Return the token ids of a text.

        Args:
            text: May be empty.
            add_special: Put the tokens that the model wants around every text, such as bos.
            parse_special: Read the spelling of a control token as that token. Only for text that is trusted.
            erase: A character to leave out once control tokens are read: it keeps a spelling from being read as one.

        Raises:
            UsageError: The text holds a lone surrogate and so is not Unicode.
            ModelFileError: The model's own rule for cutting text never ends on this one.
        """
        backend = self._parsing if parse_special else self._literal
        if erase:
            backend = _sharing_model(self._parsing, literal=not parse_special, erase=erase)
        check_unicode(text)
        ids = _ids_of(backend, text)
        return [*self._prefix, *ids, *self._suffix] if add_special else ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Return the text that the tokens add up to; bytes that are not UTF-8 become U+FFFD.

        The same as joining :meth:`token_bytes`, so that a text streamed and a text decoded whole are equal.
        """
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token adds to the text: possibly a part of a character, possibly nothing.

        Raises:
            UsageError: No such token.
        """
        if not 0 <= token_id < len(self.pieces):
            raise UsageError(f"token id {token_id} is outside the vocabulary of {len(self.pieces)} tokens")
        piece, kind = self.pieces[token_id], self.kinds[token_id]
        if kind in _SILENT:
            return b""
        if kind == TokenKind.BYTE:
            return bytes((int(piece[3:5], 16),))
        if self._spelling == "sentencepiece":
            return piece.replace("\u2581", " ").encode()
        if kind == TokenKind.USER_DEFINED:
            return piece.encode()
        try:
            return bytes(map(_BYTE_OF.__getitem__, piece))
        except KeyError:  # a token that was added to the vocabulary as plain text
            return piece.encode()


def add_tokens(backend: tokenizers.Tokenizer, added: Iterable[tuple[int, AddedToken]]) -> None:
    """Add tokens, control tokens and others, to a tokenizer, in order of id.

    Raises:
        ModelFileError: There are too many, or a token does not get its id, because there is a gap before it.
    """
    tokens = sorted(added, key=lambda item: item[0])
    size = sum(len(token.content) for _, token in tokens)
    if size > _MAX_ADDED_CHARACTERS:
        raise ModelFileError(
            f"the tokenizer's {len(tokens)} added tokens have {size} characters, the limit is {_MAX_ADDED_CHARACTERS}; "
            "use another model"
        )
    backend.add_tokens([token for _, token in tokens])
    for token_id, token in tokens:
        if backend.token_to_id(token.content) != token_id:
            raise ModelFileError(
                f"the tokenizer's added token {shown(token.content)} has id {token_id}, which leaves a gap in the "
                "vocabulary; fetch the model again or convert it anew"
            )


def _sharing_model(backend: tokenizers.Tokenizer, *, literal: bool, erase: str = "") -> tokenizers.Tokenizer:
    """Return a tokenizer that shares the model of another.

    Args:
        backend: The other one.
        literal: Whether the spelling of a control token is plain text.
        erase: See :meth:`Tokenizer.encode`.
    """
    result = tokenizers.Tokenizer(backend.model)
    steps = [normalizers.Replace(erase, "")] if erase else []
    if backend.normalizer is not None:
        steps.append(backend.normalizer)
    result.normalizer = normalizers.Sequence(steps)
    if backend.pre_tokenizer is not None:
        result.pre_tokenizer = backend.pre_tokenizer
    add_tokens(result, backend.get_added_tokens_decoder().items())
    result.encode_special_tokens = literal
    return result


def _ids_of(backend: tokenizers.Tokenizer, text: str) -> list[int]:
    try:
        if len(text) > _LONG:  # which other threads do not wait for: only batches are encoded without Python's lock
            return list(backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # which is no Exception and cannot be imported
            raise
        raise ModelFileError(f"the tokenizer gives up on a text of {len(text)} characters: {error}") from error
    return ids


def check_unicode(text: str, what: str = "the text") -> None:
    """Check that a text is Unicode.

    Raises:
        UsageError: It holds a lone surrogate; the message says where.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what} holds the lone surrogate U+{ord(text[error.start]):04X} at position {error.start}, which is no "
            "character; remove it"
        ) from error
