"""What the backend of a draft model holds: of requests that are open, and of some that have ended."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
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

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def of(self, request: DraftRequest) -> DraftCache:
        """Return a request's cache; a new one's holds what others do of its context."""
        cache = self._open.get(request.request_id)
        if cache is None:
            cache = self._open[request.request_id] = self._begun(request)
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
        self.make_room(())

    def keep(self, max_tokens: int, grain: int) -> None:
        """See :meth:`outrider.drafters.base.KeepsContexts.keep_contexts`."""
        self._kept.clear()
        self._kept = PrefixCache(self._backend, max_tokens, grain=grain)
        self._max_tokens, self._grain = max_tokens, grain

    def donor(self, context_ids: Sequence[int]) -> tuple[int | None, int]:
        """Return the sequence that holds most of a context, but for its last token, and how many; None and 0 if few."""
        held = [
            (min(common_length(cache.context_ids, context_ids), cache.num_confirmed), cache.sequence_id)
            for cache in self._open.values()
        ]
        kept = self._kept.longest(as_ids(context_ids))
        if kept is not None:
            held.append((kept[1], kept[0]))
        length, sequence_id = max(held, default=(0, 0))
        length = min(length, len(context_ids) - 1)
        return (sequence_id, length) if length >= WORTH_SHARING else (None, 0)

    def make_room(self, requests: Sequence[DraftRequest]) -> None:
        """Drop what is kept until what is open, and is to be drafted for some requests, has room beside the rest."""
        lengths = {key: self._backend.length(cache.sequence_id) for key, cache in self._open.items()}
        lengths |= {one.request_id: len(one.context_ids) + one.max_tokens for one in requests}
        needed = sum(rounded(min(length, self._backend.max_length), self._grain) for length in lengths.values())
        while self._kept.num_tokens + needed > self._max_tokens and self._kept.drop_oldest():
            pass

    def _begun(self, request: DraftRequest) -> DraftCache:
        donor, length = self.donor(request.context_ids)
        if donor is None:
            return DraftCache(self._backend.open_sequence(), request.context_ids)
        forked = self._backend.fork(donor)
        try:
            self._backend.crop(forked, length)
        except UsageError:  # its window has left that behind
            self._backend.close_sequence(forked)
            return DraftCache(self._backend.open_sequence(), request.context_ids)
        return DraftCache(forked, request.context_ids, num_confirmed=length)


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two contexts begin with alike."""
    most = min(len(one), len(other))
    return bisect_left(range(1, most + 1), x=True, key=lambda length: one[:length] != other[:length])
