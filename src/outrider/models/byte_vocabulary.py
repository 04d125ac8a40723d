"""A vocabulary as byte strings, whatever it spells them with: how two vocabularies can speak of the same text."""

from __future__ import annotations

import re

from outrider.models.tokenizer import Tokenizer, TokenKind

# How bytes that are not UTF-8 come out of ``bytes.decode(errors="surrogateescape")``.
_NOT_UTF8 = re.compile("([\udc80-\udcff]+)")
# Texts up to this length are spelled byte by byte if the tokenizer does not keep them as they are.
_SHORT = 32


class ByteVocabulary:
    """What each token adds to a text, and the tokens for any bytes.

    Args:
        tokenizer: The vocabulary.
        size: Only ids below are used.

    Attributes:
        tokenizer: The vocabulary.
        token_bytes: Of every id below ``size``; empty for tokens that are no text.
        ids: The token of a byte string. Where several say the same, an ordinary token comes before one for a single
            byte, then the lowest id.
    """

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self.tokenizer = tokenizer
        self.token_bytes = [tokenizer.token_bytes(token_id) for token_id in range(size)]
        self.ids: dict[bytes, int] = {}
        for is_byte in (False, True):
            for token_id, data in enumerate(self.token_bytes):
                if data and (tokenizer.kinds[token_id] == TokenKind.BYTE) == is_byte:
                    self.ids.setdefault(data, token_id)
        self._longest = max(map(len, self.ids), default=0)
        # Some tokenizers put a space before every text. Behind a line break there is none.
        self._lead = next((lead for lead in ("", "\n") if self._encode_behind(lead, "a") is not None), "")

    def encode(self, data: bytes) -> list[int]:
        """Return tokens that add up to the bytes, as the tokenizer would cut a text that goes on with them.

        Where a tokenizer changes a text (Unicode normal form), and where the bytes are no text, they are the longest
        tokens that fit, from left to right. Bytes for which there is no token are left out.
        """
        ids: list[int] = []
        for index, part in enumerate(_NOT_UTF8.split(data.decode("utf-8", "surrogateescape"))):
            is_text = index % 2 == 0
            ids += self._encode_text(part) if is_text else self._longest_first(part.encode("utf-8", "surrogateescape"))
        return ids

    def _encode_text(self, text: str) -> list[int]:
        ids = self._encode_behind(self._lead, text)
        if ids is not None:
            return ids
        if len(text) <= _SHORT:
            return self._longest_first(text.encode())
        space = text.find(" ", len(text) // 2)
        cut = space if space > 0 else len(text) // 2
        return self._encode_text(text[:cut]) + self._encode_text(text[cut:])

    def _encode_behind(self, lead: str, text: str) -> list[int] | None:
        """Return the tokens of a text behind another; None if they are not that text to the byte."""
        encode = self.tokenizer.encode
        before = encode(lead, add_special=False) if lead else []
        ids = encode(lead + text, add_special=False)
        own = ids[len(before) :]
        if ids[: len(before)] != before or max(own, default=0) >= len(self.token_bytes):
            return None
        return own if b"".join(map(self.token_bytes.__getitem__, own)) == text.encode() else None

    def _longest_first(self, data: bytes) -> list[int]:
        ids, start = [], 0
        while start < len(data):
            ends = range(min(start + self._longest, len(data)), start, -1)
            end = next((end for end in ends if data[start:end] in self.ids), None)
            if end is not None:
                ids.append(self.ids[data[start:end]])
            start = end or start + 1
        return ids
