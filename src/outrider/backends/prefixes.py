"""Caches of texts that nobody is working on any more, for those that begin like them. Knows nothing of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.backends.base import Backend

Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    cache_id: int
    token_ids: Ids  # what the cache holds


class PrefixCache:
    """The caches of texts last used, at most so many tokens in all.

    Args:
        backend: Whose caches they are. They are forks, so whoever hands one in goes on with its own.
        max_tokens: How many tokens they may hold, each counted in every text that it is in.
        grain: Caches grow by so many tokens, so a text counts for a multiple of that.
    """

    def __init__(self, backend: Backend, max_tokens: int, *, grain: int = 1) -> None:
        self._backend = backend
        self._max_tokens = max_tokens
        self._grain = grain
        self._entries: list[_Entry] = []  # the one used last is the last

    @property
    def num_tokens(self) -> int:
        """How many tokens they have room for."""
        return sum(rounded(len(entry.token_ids), self._grain) for entry in self._entries)

    def add(self, cache_id: int, token_ids: Sequence[int]) -> None:
        """Keep what a cache holds, in place of texts that it begins with.

        Args:
            cache_id: It is forked; it must not hold a tree.
            token_ids: The tokens in it.
        """
        ids = as_ids(token_ids)
        if not 0 < rounded(len(ids), self._grain) <= self._max_tokens:
            return
        for entry in list(self._entries):
            common = common_length(entry.token_ids, ids)
            if common == len(ids):
                self._use(entry)
                return
            if common == len(entry.token_ids):
                self._drop(entry)
        self._entries.append(_Entry(self._backend.fork(cache_id), ids))
        while self.num_tokens > self._max_tokens:
            self.drop_oldest()

    def longest(self, token_ids: Ids) -> tuple[int, int] | None:
        """Return the cache that shares most with the beginning of a text, and how many tokens; None if none does."""
        best = max(self._entries, key=lambda entry: common_length(entry.token_ids, token_ids), default=None)
        if best is None or (common := common_length(best.token_ids, token_ids)) == 0:
            return None
        self._use(best)
        return best.cache_id, common

    def drop_oldest(self) -> bool:
        """Free the cache that was not used for the longest time; return whether there was one."""
        if not self._entries:
            return False
        self._drop(self._entries[0])
        return True

    def clear(self) -> None:
        """Free all."""
        while self.drop_oldest():
            pass

    def _use(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self._entries.append(entry)

    def _drop(self, entry: _Entry) -> None:
        self._entries.remove(entry)
        self._backend.close_sequence(entry.cache_id)


def rounded(length: int, grain: int) -> int:
    """Return a length as a multiple of a grain, no less."""
    return -(-length // grain) * grain


def as_ids(token_ids: Sequence[int]) -> Ids:
    """Return token ids in an array, to be compared quickly."""
    return np.asarray(token_ids, dtype=np.int32)


def common_length(one: Ids, other: Ids) -> int:
    """Return how many tokens two texts have in common at their beginning."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
