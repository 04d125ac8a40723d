"""What the backend of a draft model holds: of requests that are open, and of some that have ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from outrider.backends.base import Backend
from outrider.backends.prefixes import PrefixCache, as_ids, rounded
from outrider.drafters.base import DraftRequest
from outrider.errors import UsageError

# Fewer tokens that two contexts begin with are not worth a fork, nor a pass of their own.
WORTH_SHARING = 32


@dataclass(slots=True)
class DraftCache:
    """What the backend's cache holds for one request: a prefix of its context, then draft tokens that were fed."""

    sequence_id: int
    context_ids: Sequence[int]
    num_confirmed: int = 0
    drafted_ids: list[int] = field(default_factory=list)
    most: int = 0  # tokens that it may hold in the round


class DraftCaches:
    """Caches by request, each begun with what another one holds of its context.

    Args:
        backend: Its sequences belong to nobody else.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: dict[Hashable, DraftCache] = {}
        self._kept, self._max_tokens, self._grain = PrefixCache(backend, 0), 0, 1

    def __contains__(self, request_id: Hashable) -> bool:
        return request_id in self._open

    def __len__(self) -> int:
        return len(self._open)

    def of(self, request: DraftRequest) -> DraftCache:
        """Return a request's cache, with room for the round; a new one's holds what others do of its context."""
        cache = self._open.get(request.request_id)
        if cache is None:
            sequence_id, length = self._begun(request.context_ids)
            cache = self._open[request.request_id] = DraftCache(sequence_id, request.context_ids, length)
        cache.context_ids = request.context_ids
        cache.most = len(request.context_ids) + max(request.max_tokens, request.max_tree_tokens)
        self._make_room()
        return cache

    def release(self, request_id: Hashable) -> None:
        """Free the cache of a request, or keep what it holds of the context. Unknown ids are ignored."""
        cache = self._open.pop(request_id, None)
        if cache is None:
            return
        try:
            self._backend.crop(cache.sequence_id, cache.num_confirmed)
            self._kept.add(cache.sequence_id, cache.context_ids[: cache.num_confirmed])
        finally:
            self._backend.close_sequence(cache.sequence_id)
        self._make_room()

    def keep(self, max_tokens: int, grain: int) -> None:
        """See :meth:`outrider.drafters.base.KeepsContexts.keep_contexts`."""
        self._kept.clear()
        self._kept = PrefixCache(self._backend, max_tokens, grain=grain)
        self._max_tokens, self._grain = max_tokens, grain

    def num_held(self, context_ids: Sequence[int]) -> int:
        """See :meth:`outrider.drafters.base.KeepsContexts.num_held`."""
        sequence_id, length = self._begun(context_ids)
        self._backend.close_sequence(sequence_id)
        return length

    def _begun(self, context_ids: Sequence[int]) -> tuple[int, int]:
        """Open a sequence that holds what another one does of a context; return it and how many tokens those are."""
        donor, length = self._donor(context_ids)
        if length < WORTH_SHARING:
            return self._backend.open_sequence(), 0
        forked = self._backend.fork(donor)
        try:
            self._backend.crop(forked, length)
        except UsageError:  # its window has left that behind
            self._backend.close_sequence(forked)
            return self._backend.open_sequence(), 0
        return forked, length

    def _donor(self, context_ids: Sequence[int]) -> tuple[int, int]:
        """Return the sequence that holds most of a context, and how many tokens: not the last, which has a pass."""
        held = [
            (min(common_length(cache.context_ids, context_ids), cache.num_confirmed), cache.sequence_id)
            for cache in self._open.values()
        ]
        kept = self._kept.longest(as_ids(context_ids))
        if kept is not None:
            held.append((kept[1], kept[0]))
        length, sequence_id = max(held, default=(0, 0))
        return sequence_id, min(length, len(context_ids) - 1)

    def _make_room(self) -> None:
        """Drop what is kept until what is open has room beside the rest; what is new has begun with it by then."""
        most = self._backend.max_length
        needed = sum(rounded(min(cache.most, most), self._grain) for cache in self._open.values())
        while self._kept.num_tokens + needed > self._max_tokens and self._kept.drop_oldest():
            pass


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two contexts begin with alike."""
    most = min(len(one), len(other))
    return bisect_left(range(1, most + 1), x=True, key=lambda length: one[:length] != other[:length])
