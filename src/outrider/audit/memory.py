"""A model that remembers: what it said after some tokens is looked up when they come again.

Thousands of draws from one prefix meet the same few hundred contexts. A row of logits depends on its own tokens alone,
bit for bit (see :mod:`outrider.backends.base`), so a row that a plain pass computed once is what every later pass would
give. That is not taken on trust: :class:`CheckedBackend` runs passes for real and holds each row against the plain one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import PIECE
from outrider.backends.toy import TokenListBackend
from outrider.types import Logits

Prefix = tuple[int, ...]
_MAX_BYTES = 2 << 30  # more rows than the draws that are made side by side ask for between being made and counted
_BATCH = 32  # contexts of a plain pass
_BRANCHES = 64  # caches of contexts that are kept, for those that follow them
_LONGEST_TAIL = 48  # tokens worth feeding again rather than reading the whole of a new text


class Memory:
    """Rows of logits by the tokens before them, computed by plain passes of chains.

    Args:
        backend: Computes what is not remembered; nobody else's forks are touched.
        max_bytes: Of rows; the least recently used are forgotten.
    """

    def __init__(self, backend: Backend, max_bytes: int = _MAX_BYTES) -> None:
        self.vocab_size, self.max_length = backend.vocab_size, backend.max_length
        self.num_computed = 0
        self._backend = backend
        self._most = max(256, max_bytes // (4 * backend.vocab_size))
        self._rows: OrderedDict[Prefix, Logits] = OrderedDict()
        self._trunk: Prefix = ()
        self._trunk_id = backend.open_sequence()
        self._branches: OrderedDict[int, Prefix] = OrderedDict()  # what each cache holds; the least recently used first
        self._holders: dict[Prefix, int] = {}  # a cache that begins with these tokens, which the trunk does not

    def rows(self, prefixes: Sequence[Sequence[int]]) -> Logits:
        """Return the logits ``[prefixes, vocab_size]`` after each of some prefixes of at least one token."""
        keys = [tuple(prefix) for prefix in prefixes]
        self.learn(keys)
        logits = np.empty((len(keys), self.vocab_size), dtype=np.float32)
        for key, row in zip(keys, logits, strict=True):
            row[:] = self.row(key)
        return logits

    def row(self, prefix: Sequence[int]) -> Logits:
        """Return the logits ``[vocab_size]`` after at least one token; not to be modified."""
        key = tuple(prefix)
        if key not in self._rows:
            self.learn([key])
        self._rows.move_to_end(key)
        return self._rows[key]

    def learn(self, prefixes: Iterable[Prefix]) -> None:
        """Compute what is not remembered of some rows, many in a pass."""
        chains: list[tuple[Prefix, int]] = []  # the longest of each line of descent, and the shortest wanted of it
        # Not a difference of sets: that would hash every prefix there is.
        for prefix in sorted({prefix for prefix in prefixes if prefix not in self._rows}, reverse=True):
            if chains and chains[-1][0][: len(prefix)] == prefix:
                chains[-1] = (chains[-1][0], len(prefix))
            else:
                chains.append((prefix, len(prefix)))
        for start in range(0, len(chains), _BATCH):
            self._compute(chains[start : start + _BATCH])
        while len(self._rows) > self._most:
            self._rows.popitem(last=False)

    def close(self) -> None:
        """Free what the backend holds for it."""
        self._cut_branches(0)
        self._backend.close_sequence(self._trunk_id)

    def _compute(self, chains: Sequence[tuple[Prefix, int]]) -> None:
        batch: list[Rows] = []
        wanted: list[Prefix] = []
        for chain, shortest in chains:
            if shortest - 1 - _common(self._trunk, chain) > _LONGEST_TAIL:
                self._read(chain[: shortest - 1])
            source_id, kept = self._nearest(chain[: shortest - 1])
            fork_id = self._backend.fork(source_id)
            self._backend.crop(fork_id, kept)
            batch.append(Rows(fork_id, chain[kept:], len(chain) - shortest + 1))
            wanted += [chain[:length] for length in range(shortest, len(chain) + 1)]
        for prefix, row in zip(wanted, self._backend.forward(batch), strict=True):
            self._rows[prefix] = row.copy()
        self.num_computed += len(wanted)
        for rows, (chain, _) in zip(batch, chains, strict=True):
            self._branches[rows.sequence_id] = chain
            self._holders.update((prefix, rows.sequence_id) for prefix in self._beyond_trunk(chain))
        self._cut_branches(_BRANCHES)

    def _nearest(self, text: Prefix) -> tuple[int, int]:
        """Return a cache to begin with, and how many of its tokens are the text's first."""
        for prefix in self._beyond_trunk(text):
            if (branch_id := self._holders.get(prefix)) is not None:
                self._branches.move_to_end(branch_id)
                return branch_id, len(prefix)
        return self._trunk_id, _common(self._trunk, text)

    def _beyond_trunk(self, text: Prefix) -> Iterator[Prefix]:
        """Yield what a text begins with and the trunk does not, the longest first."""
        for length in range(len(text), _common(self._trunk, text), -1):
            yield text[:length]

    def _cut_branches(self, most: int) -> None:
        while len(self._branches) > most:
            branch_id, chain = self._branches.popitem(last=False)
            self._backend.close_sequence(branch_id)
            for prefix in self._beyond_trunk(chain):
                if self._holders.get(prefix) == branch_id:
                    del self._holders[prefix]

    def _read(self, text: Prefix) -> None:
        self._cut_branches(0)
        common = _common(self._trunk, text)
        self._backend.crop(self._trunk_id, common)
        for start in range(common, len(text), PIECE):
            self._backend.forward([Rows(self._trunk_id, text[start : start + PIECE], num_logits=0)])
        self._trunk = text


def _common(one: Prefix, other: Prefix) -> int:
    limit = min(len(one), len(other))
    if one[:limit] == other[:limit]:
        return limit
    return next(index for index in range(limit) if one[index] != other[index])


class RememberedBackend(TokenListBackend):
    """A model's backend whose rows come from a :class:`Memory`."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory.vocab_size, memory.max_length, memory.rows)


class CheckedBackend:
    """A model's own backend, run for real; each row of logits is held against that of a plain pass.

    Attributes:
        num_rows: How many rows were compared.
        num_different: How many of them were not the same, bit for bit.
    """

    def __init__(self, backend: Backend, memory: Memory) -> None:
        self.num_rows = self.num_different = 0
        self._backend = backend
        self._plain = RememberedBackend(memory)
        self._ids: dict[int, int] = {}  # ours to the plain one's

    @property
    def vocab_size(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self._backend.vocab_size

    @property
    def max_length(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self._backend.max_length

    def open_sequence(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        sequence_id = self._backend.open_sequence()
        self._ids[sequence_id] = self._plain.open_sequence()
        return sequence_id

    def close_sequence(self, sequence_id: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self._plain.close_sequence(self._ids.pop(sequence_id))
        self._backend.close_sequence(sequence_id)

    def fork(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        fork_id = self._backend.fork(sequence_id)
        self._ids[fork_id] = self._plain.fork(self._ids[sequence_id])
        return fork_id

    def length(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self._backend.length(sequence_id)

    def crop(self, sequence_id: int, length: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self._plain.crop(self._ids[sequence_id], length)
        self._backend.crop(sequence_id, length)

    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self._plain.keep_path(self._ids[sequence_id], nodes)
        self._backend.keep_path(sequence_id, nodes)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See :class:`~outrider.backends.base.Backend`."""
        plain = self._plain.forward(
            [Rows(self._ids[rows.sequence_id], rows.token_ids, rows.num_logits, rows.parents) for rows in batch]
        )
        logits = self._backend.forward(batch)
        same = (logits == plain).all(axis=1)
        self.num_rows += len(same)
        self.num_different += int((~same).sum())
        return logits
