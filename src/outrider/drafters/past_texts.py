"""Past outputs, searched by the tokens they hold: 16 bytes of memory a token. Token ids only; knows no files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.drafters.lookup import Match, match_length, vote

ORDER = 4  # a shorter match says little in a text from elsewhere
_MAX_CANDIDATES = 16
_LONGEST_DRAFT = 64
_END = -1  # between two texts; matches no token
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: the multiplier of SplitMix64


class PastTexts:
    """A growing collection of texts. Adding one costs amortised ``log n`` a token, a look-up about ``log² n``."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []

    @property
    def num_tokens(self) -> int:
        """Tokens in all texts, and one more for each text."""
        return sum(len(segment.ids) for segment in self._segments)

    @property
    def num_bytes(self) -> int:
        """Memory that the texts and their index take."""
        return sum(part.nbytes for one in self._segments for part in (one.ids, one.keys, one.places))

    def add(self, ids: NDArray[np.int32]) -> None:
        """Add a text. As in a log-structured merge, a segment is merged with one that is not twice as long."""
        text = np.append(ids.astype(np.int32), np.int32(_END))
        while self._segments and len(self._segments[-1].ids) < 2 * len(text):
            text = np.append(self._segments.pop().ids, text)
        self._segments.append(_Segment(text))

    def find(self, context: Sequence[int]) -> tuple[Match, list[int]] | None:
        """Return the best match with the end of a context, and the tokens that follow it in its text."""
        if len(context) < ORDER:
            return None
        tail = list(context[-_LONGEST_DRAFT:])
        key = _keys(np.array(tail[-ORDER:], np.int32))[0]
        found: list[tuple[int, int, list[int]]] = []  # length, rank, what follows
        for segment in reversed(self._segments):
            for place in segment.places_of(key, _MAX_CANDIDATES - len(found)):
                before = segment.ids[max(0, place - len(tail)) : place].tolist()
                length = match_length(before, len(before), tail, len(tail))
                if length >= ORDER:  # and no mere collision of keys
                    found.append((length, -len(found), segment.following(place)))
        if not found:
            return None
        winner, agreement = vote([(length, after[0]) for length, _, after in found])
        length, _, after = max(one for one in found if one[2][0] == winner)
        return Match(0, length, agreement), after


class _Segment:
    """Texts one after the other, and every place in them sorted by the n-gram before it."""

    def __init__(self, ids: NDArray[np.int32]) -> None:
        self.ids = ids
        keys = _keys(ids)[:-1]  # the last place has no follower
        followed = ids[ORDER:] != _END
        places = np.flatnonzero(followed).astype(np.int32) + np.int32(ORDER)
        keys = keys[followed]
        order = np.argsort(keys, kind="stable")
        self.keys, self.places = keys[order], places[order]

    def places_of(self, key: np.uint64, limit: int) -> list[int]:
        """Return the latest places after an n-gram."""
        low, high = np.searchsorted(self.keys, key, "left"), np.searchsorted(self.keys, key, "right")
        latest: list[int] = self.places[max(low, high - limit) : high][::-1].tolist()
        return latest

    def following(self, place: int) -> list[int]:
        """Return the tokens from a place to the end of its text."""
        after: list[int] = self.ids[place : place + _LONGEST_DRAFT].tolist()
        return after[: after.index(_END)] if _END in after else after


def _keys(ids: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return a hash of each run of ``ORDER`` ids."""
    num_keys = max(len(ids) - ORDER + 1, 0)
    keys = np.zeros(num_keys, np.uint64)
    for offset in range(ORDER):
        keys = (keys ^ ids[offset : offset + num_keys].astype(np.uint64)) * _MIX
        keys ^= keys >> np.uint64(29)
    return keys
