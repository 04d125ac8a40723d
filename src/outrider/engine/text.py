"""From token ids to text, one token at a time, without ever taking a character back.

Knows nothing of rounds or drafts: tokens come one by one, so text cannot depend on how they were found.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol


class Detokenizer(Protocol):
    """What turning ids into text takes."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return the UTF-8 bytes that a token adds to a text, perhaps part of a character; none for control tokens."""


class TextAssembler:
    """Builds the text of one answer.

    Two things are held back until a later token settles them: the bytes of an unfinished character, and the end of
    the text while it may yet grow into a stop string. Bytes that never become a character end up as U+FFFD, as in
    ``bytes.decode(errors="replace")``.
    """

    def __init__(self, detokenizer: Detokenizer, stop: Sequence[str] = ()) -> None:
        self._detokenizer = detokenizer
        self._stop = tuple(stop)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string is complete. The text ends before it; nothing may be added."""
        return self._is_stopped

    def add(self, token_id: int, *, may_stop: bool = True) -> str:
        """Return the text that is certain now and was not before.

        Args:
            token_id: The next token.
            may_stop: Whether a stop string that the token completes ends the text.
        """
        return self._add(self._decoder.decode(self._detokenizer.token_bytes(token_id)), may_stop=may_stop)

    def finish(self, *, may_stop: bool = True) -> str:
        """Return what was held back; the answer ends here.

        Args:
            may_stop: Whether a stop string ends the text that the U+FFFD of an unfinished character completes.
        """
        if self._is_stopped:
            return ""
        return self._add(self._decoder.decode(b"", final=True), may_stop=may_stop) + self._held

    def _add(self, characters: str, *, may_stop: bool) -> str:
        text = self._held + characters
        found = [start for start in map(text.find, self._stop) if start >= 0]
        if found and may_stop:
            self._is_stopped = True
            self._held = ""
            return text[: min(found)]
        num_certain = len(text) - max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[num_certain:]
        return text[:num_certain]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that begins ``stop`` without completing it."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
