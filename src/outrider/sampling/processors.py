"""What changes logits before temperature: bias, penalties, masks; in this order.

The order is that of vLLM, where it matters: the repetition penalty divides or multiplies what a bias has added. Masks
exclude tokens, whatever the rest made of them. Each function changes one row ``[vocab_size]`` in place, touches no more
of it than it must, and depends on nothing but its arguments: so a row is the same at a draft position and in plain
decoding. :class:`~outrider.sampling.shaper.LawShaper` calls them on rows of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider._core import copy_row
from outrider.sampling.params import SamplingParams
from outrider.types import Logits

Ids = NDArray[np.intp]
Counts = NDArray[np.int64]


def add_bias(row: Logits, ids: Ids, biases: NDArray[np.float32]) -> None:
    """Add a bias to the logit of each of some tokens; ``ids`` are distinct."""
    row[ids] += biases


def penalise(row: Logits, ids: Ids, output_counts: Counts, params: SamplingParams) -> None:
    """Apply the three penalties, the repetition penalty first.

    Args:
        row: Logits.
        ids: The distinct tokens of prompt and output: what the repetition penalty is about.
        output_counts: How often each of them occurs in the output: what the other two are about.
        params: The penalties.
    """
    logits = row[ids].astype(np.float64)
    if params.repetition_penalty is not None:
        factor = params.repetition_penalty
        logits = np.where(logits > 0, logits / factor, logits * factor)
    if params.frequency_penalty is not None:
        logits -= params.frequency_penalty * output_counts
    if params.presence_penalty is not None:
        logits -= params.presence_penalty * (output_counts > 0)
    row[ids] = logits


def keep_only(row: Logits, ids: Ids) -> None:
    """Exclude all other tokens."""
    kept = row[ids]
    row[:] = -np.inf
    row[ids] = kept


def keep_allowed(row: Logits, allowed: NDArray[np.uint8]) -> None:
    """Exclude the tokens whose bit is 0, the lowest bit of a byte first."""
    copy_row(row, row, allowed)


def exclude(row: Logits, ids: Ids) -> None:
    """Exclude tokens."""
    row[ids] = -np.inf


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
        ids, counts = self._ids[: self._size], self._counts[: self._size]
        if not draft_ids:
            return ids, counts
        counts = counts.copy()
        new: dict[int, int] = {}
        for token_id in draft_ids:
            place = self._places.get(token_id)
            if place is None:
                new[token_id] = new.get(token_id, 0) + 1
            else:
                counts[place] += 1
        return np.append(ids, np.fromiter(new, np.intp)), np.append(counts, np.fromiter(new.values(), np.int64))
