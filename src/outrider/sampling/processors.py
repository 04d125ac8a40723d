"""What settings ask to be done to logits before temperature, and to which tokens.

The order is bias, penalties, masks: that of vLLM, where it matters. The repetition penalty divides or multiplies what a
bias has added; masks exclude tokens, whatever the rest made of them. The core does all of it in one call a row
(``csrc/sampling/shape.cpp``); ``tests/sampling/numpy_shaping.py`` has the same in NumPy, which it is held against. What
is worked out here depends on nothing but the tokens before a position: so a row is the same at a draft position and in
plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.intp]
Counts = NDArray[np.int64]


def completing_ids(output_ids: Sequence[int], words: Sequence[Sequence[int]]) -> list[int]:
    """Return the last token of each word whose other tokens are what the output ends in."""
    return [
        word[-1]
        for word in words
        if len(word) <= len(output_ids) + 1 and [*output_ids[len(output_ids) + 1 - len(word) :]] == [*word[:-1]]
    ]


class TokenCounts:
    """Which tokens occur in the prompt and the output, and how often in the output."""

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self._ids: Ids = np.unique(np.asarray(prompt_ids, dtype=np.intp))
        self._counts: Counts = np.zeros(len(self._ids), dtype=np.int64)
        self._size = len(self._ids)
        self._places = {token_id: place for place, token_id in enumerate(self._ids.tolist())}

    def add(self, token_id: int) -> None:
        """Count one more token of the output."""
        place = self._places.setdefault(token_id, self._size)
        if place == self._size:
            if self._size == len(self._ids):  # room for twice as many
                self._ids = np.resize(self._ids, 2 * self._size + 1)
                self._counts = np.resize(self._counts, 2 * self._size + 1)
            self._ids[place], self._counts[place] = token_id, 0
            self._size += 1
        self._counts[place] += 1

    def after(self, draft_ids: Sequence[int]) -> tuple[Ids, Counts]:
        """Return distinct ids, and how often each occurs in the output, as if the draft tokens had been added.

        The arrays are as long as there are distinct tokens, and must not be modified.
        """
        size = self._size
        if not draft_ids:
            return self._ids[:size], self._counts[:size]
        places = dict[int, int]()
        for token_id in draft_ids:
            if token_id not in self._places and token_id not in places:
                places[token_id] = size + len(places)
        if size + len(places) > len(self._ids):
            self._ids, self._counts = (np.resize(old, 2 * (size + len(places))) for old in (self._ids, self._counts))
        ids, counts = self._ids[: size + len(places)], self._counts[: size + len(places)].copy()
        ids[size:], counts[size:] = [*places], 0  # behind those that are counted
        for token_id in draft_ids:
            counts[self._places.get(token_id, places.get(token_id))] += 1
        return ids, counts
