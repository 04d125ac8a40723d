"""A context in another model's tokens, kept up to date as it grows and is cut short.

The text of a context is spelled as the other model's tokenizer would spell it whole, not token by token: a model is
best at texts that are cut as in its training. What comes after a place where every tokenizer cuts, a space behind
something else, does not change what comes before. So only the last word or two are spelled anew when tokens are added,
and a context costs no more than its new tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

from outrider.models.joint_vocabulary import JointVocabulary

_SPACES = frozenset(b" \t\n\v\f\r")
# How many bytes to look back for a place where every tokenizer cuts. In text without spaces, tokens end where they can.
_WINDOW = 256


@dataclass(frozen=True, slots=True)
class _Segment:
    """Text up to the next control token; where it starts in the joint tokens, in the text and in the draft's tokens."""

    num_tokens: int
    byte: int
    draft_index: int


class Transcript:
    """One context, in joint ids and in the draft's.

    Args:
        vocabulary: Of the target and the draft.

    Attributes:
        draft_ids: What the draft is to read, valid after :meth:`extend`. It begins with what the draft wants before
            every text.
        num_unchanged: How many of ``draft_ids`` have not changed since the caller set this to their number.
    """

    def __init__(self, vocabulary: JointVocabulary) -> None:
        self._vocabulary = vocabulary
        self._text = bytearray()
        self._ends: list[int] = []  # in the text, of each joint token
        self.draft_ids = vocabulary.draft.tokenizer.encode("")
        self._draft_ends = [0] * len(self.draft_ids)
        self._segments = [_Segment(0, 0, len(self.draft_ids))]
        self._num_spelled = 0  # bytes of the text that draft_ids begin with
        self._is_stale = False  # whether draft_ids may end with more than that
        self.num_unchanged = 0

    def __len__(self) -> int:
        """Return how many joint tokens there are."""
        return len(self._ends)

    def copy(self) -> Transcript:
        """Return one that goes its own way from here."""
        other = copy(self)
        other.draft_ids, other._draft_ends = self.draft_ids.copy(), self._draft_ends.copy()
        other._text, other._ends, other._segments = self._text.copy(), self._ends.copy(), self._segments.copy()
        return other

    def crop(self, length: int) -> None:
        """Forget the tokens at ``length`` and after. What the draft would read again is not lost."""
        if length == len(self._ends):
            return
        del self._ends[length:]
        del self._text[self._ends[-1] if length else 0 :]
        while self._segments[-1].num_tokens > length:
            self._segments.pop()
        self._num_spelled = min(self._num_spelled, len(self._text))
        self._is_stale = True

    def extend(self, joint_ids: Sequence[int]) -> None:
        """Add tokens."""
        for joint_id in joint_ids:
            data = self._vocabulary.token_bytes(joint_id)
            self._text += data
            self._ends.append(len(self._text))
            if not data:
                self._add_control(joint_id)
        self._spell()

    def _add_control(self, joint_id: int) -> None:
        self._spell()
        control = self._vocabulary.draft_control(joint_id)
        is_there_already = len(self) == 1 and self.draft_ids == [control]  # as the token that begins every text
        if control is not None and not is_there_already:
            self._replace(len(self.draft_ids), [control], [len(self._text)])
        self._segments.append(_Segment(len(self), len(self._text), len(self.draft_ids)))

    def _spell(self) -> None:
        """Let the draft's tokens spell the text, from the last place on that is sure to stay."""
        if self._num_spelled == len(self._text) and not self._is_stale:
            return
        byte, index = self._restart()
        ids = self._vocabulary.draft.encode(bytes(self._text[byte:]))
        ends = []
        for draft_id in ids:
            data = self._vocabulary.draft.token_bytes[draft_id]
            byte = self._text.index(data, byte) + len(data)  # behind bytes, if any, that the draft has no token for
            ends.append(byte)
        self._replace(index, ids, ends)
        self._num_spelled = len(self._text)
        self._is_stale = False

    def _restart(self) -> tuple[int, int]:
        """Return where to spell from, in the text and in the draft's tokens."""
        segment = self._segments[-1]
        lowest = max(segment.byte, self._num_spelled - _WINDOW)
        space = self._num_spelled
        while (space := self._text.rfind(b" ", lowest + 1, space)) >= 0:
            if self._text[space - 1] not in _SPACES and (index := self._draft_index(space, segment)) is not None:
                return space, index
        if lowest > segment.byte:
            index = bisect_left(self._draft_ends, lowest, segment.draft_index)
            if index < len(self._draft_ends) and self._draft_ends[index] <= self._num_spelled:
                return self._draft_ends[index], index + 1
        return segment.byte, segment.draft_index

    def _draft_index(self, byte: int, segment: _Segment) -> int | None:
        """Return how many of the draft's tokens end at a byte of the text or before; None if one goes across."""
        index = bisect_left(self._draft_ends, byte, segment.draft_index)
        return index + 1 if index < len(self._draft_ends) and self._draft_ends[index] == byte else None

    def _replace(self, index: int, ids: list[int], ends: list[int]) -> None:
        """Let the draft's tokens from ``index`` on be others; those that stay the same are not touched."""
        pairs = zip(self.draft_ids[index:], ids, strict=False)
        same = next((n for n, (old, new) in enumerate(pairs) if old != new), min(len(self.draft_ids) - index, len(ids)))
        self.num_unchanged = min(self.num_unchanged, index + same)
        self.draft_ids[index + same :] = ids[same:]
        self._draft_ends[index:] = ends
