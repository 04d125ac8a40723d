"""Exact table models: small vocabularies whose probabilities are known as fractions.

For proofs and tests. A weight is a whole number, so that a law is exact as fractions, and its logarithm is a logit, so
that the same model is a :class:`~outrider.backends.base.Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import blake2b
from typing import Protocol

import numpy as np

from outrider.backends.base import Rows
from outrider.errors import ContextLengthError, UsageError
from outrider.types import Logits, Probs


class ToyModel(Protocol):
    """Whole-numbered weights of the next token, given everything before it."""

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""

    def weights(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """Return ``vocab_size`` weights, at least zero and not all zero."""


@dataclass(frozen=True, slots=True)
class HashLM:
    """Weights that are a pseudo-random function of the whole prefix.

    Whatever is stale, missing, doubled or out of order in a cache changes what comes next, which makes this model the
    sharpest test of rollback.

    Attributes:
        vocab_size: How many tokens there are.
        seed: Tells models apart.
        max_weight: Weights are from ``min_weight`` to this.
        min_weight: 0 lets some tokens be impossible after some prefixes; token ``len(prefix) % vocab_size`` is then
            always possible.
    """

    vocab_size: int
    seed: int = 0
    max_weight: int = 7
    min_weight: int = 1

    def weights(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """See :meth:`ToyModel.weights`."""
        span = self.max_weight - self.min_weight + 1
        prefix_key = ",".join(map(str, (self.seed, *prefix))).encode()
        weights = [self.min_weight + _hash(prefix_key, token_id) % span for token_id in range(self.vocab_size)]
        if not any(weights):
            weights[len(prefix) % self.vocab_size] = 1
        return tuple(weights)


@dataclass(frozen=True, slots=True)
class TableLM:
    """Weights that depend on the last token alone.

    Attributes:
        table: Row ``i`` follows token ``i``; all of one length.
        first: Weights of the first token.
    """

    table: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return len(self.first)

    def weights(self, prefix: Sequence[int]) -> tuple[int, ...]:
        """See :meth:`ToyModel.weights`."""
        return self.table[prefix[-1]] if prefix else self.first


def exact_probs(model: ToyModel, prefix: Sequence[int]) -> Probs:
    """Return the law of the next token, ``[vocab_size]`` fractions."""
    weights = model.weights(prefix)
    total = sum(weights)
    return np.array([Fraction(weight, total) for weight in weights], dtype=object)


def _hash(key: bytes, token_id: int) -> int:
    return int.from_bytes(blake2b(key, digest_size=8, salt=str(token_id).encode()).digest(), "big")


class TokenListBackend:
    """Logits as a function of all tokens before, behind the contract of real models; a ``Backend``.

    A cache is the list of the tokens in it.

    Args:
        vocab_size: How many tokens there are.
        max_length: The most tokens that one sequence's cache may hold.
        logits_after: From lists of the tokens so far to logits ``[lists, vocab_size]`` of what follows each.
    """

    def __init__(
        self, vocab_size: int, max_length: int, logits_after: Callable[[Sequence[Sequence[int]]], Logits]
    ) -> None:
        self._vocab_size = vocab_size
        self._max_length = max_length
        self._logits_after = logits_after
        self._caches: dict[int, list[int]] = {}
        self._trees: dict[int, Rows] = {}  # what was given to sequences that hold a tree, beside their caches
        self._opened = 0

    @property
    def vocab_size(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self._vocab_size

    @property
    def max_length(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self._max_length

    def open_sequence(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        self._opened += 1
        self._caches[self._opened] = []
        return self._opened

    def close_sequence(self, sequence_id: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self._cache(sequence_id)
        del self._caches[sequence_id]
        self._trees.pop(sequence_id, None)

    def fork(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        self._check_no_tree(sequence_id)
        fork_id = self.open_sequence()
        self._caches[fork_id] = list(self._cache(sequence_id))
        return fork_id

    def length(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        tree = self._trees.get(sequence_id)
        return len(self._cache(sequence_id)) + (len(tree.token_ids) if tree else 0)

    def crop(self, sequence_id: int, length: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        cache = self._cache(sequence_id)
        if not 0 <= length <= len(cache):
            raise UsageError(f"cannot crop to {length}; the sequence holds {len(cache)} tokens in a chain")
        self._trees.pop(sequence_id, None)
        del cache[length:]

    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        cache, tree = self._cache(sequence_id), self._trees.get(sequence_id)
        if tree is None or tree.parents is None:
            raise UsageError(f"sequence {sequence_id} holds no tree to keep a path of")
        for parent, node in zip([-1, *nodes], nodes, strict=False):
            if not 0 <= node < len(tree.token_ids) or tree.parents[node] != parent:
                raise UsageError(f"node {node} does not follow {parent} in the tree")
        del self._trees[sequence_id]
        cache.extend(tree.token_ids[node] for node in nodes)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See :class:`~outrider.backends.base.Backend`."""
        for rows in batch:
            self._check(rows)
        if len({rows.sequence_id for rows in batch}) != len(batch):
            raise UsageError("a sequence is given twice in one pass")
        wanted: list[list[int]] = []
        for rows in batch:
            prefixes = self._prefixes(rows)
            wanted += prefixes[len(prefixes) - rows.num_logits :]
            if rows.parents is None:
                self._cache(rows.sequence_id).extend(rows.token_ids)
            else:
                self._trees[rows.sequence_id] = replace(rows, token_ids=[*rows.token_ids], parents=[*rows.parents])
        return self._logits_after(wanted)

    def _prefixes(self, rows: Rows) -> list[list[int]]:
        """Return for each token all that leads to it, and it."""
        prefixes: list[list[int]] = []
        parents = range(-1, len(rows.token_ids) - 1) if rows.parents is None else rows.parents
        for token_id, parent in zip(rows.token_ids, parents, strict=True):
            before = self._cache(rows.sequence_id) if parent < 0 else prefixes[parent]
            prefixes.append([*before, token_id])
        return prefixes

    def _cache(self, sequence_id: int) -> list[int]:
        if sequence_id not in self._caches:
            raise UsageError(f"sequence {sequence_id} is not open")
        return self._caches[sequence_id]

    def _check_no_tree(self, sequence_id: int) -> None:
        self._cache(sequence_id)
        if sequence_id in self._trees:
            raise UsageError(f"sequence {sequence_id} holds a tree; keep a path of it or crop first")

    def _check(self, rows: Rows) -> None:
        self._check_no_tree(rows.sequence_id)
        length = len(self._cache(rows.sequence_id)) + len(rows.token_ids)
        if length > self._max_length:
            raise ContextLengthError(f"{length} tokens do not fit; a sequence holds at most {self._max_length}")
        if not 0 <= rows.num_logits <= len(rows.token_ids) or not rows.token_ids:
            raise UsageError(f"{rows.num_logits} rows of logits wanted of {len(rows.token_ids)} tokens")
        for token_id in rows.token_ids:
            if not 0 <= token_id < self.vocab_size:
                raise UsageError(f"token id {token_id} is outside the vocabulary, 0 to {self.vocab_size - 1}")
        if rows.parents is not None and len(rows.parents) != len(rows.token_ids):
            raise UsageError(f"{len(rows.parents)} parents are given for {len(rows.token_ids)} tokens")
        for node, parent in enumerate(rows.parents or ()):
            if not -1 <= parent < node:
                raise UsageError(f"the parent of node {node} is {parent}; it must be -1 or an earlier node")


class ToyBackend(TokenListBackend):
    """A toy model as a ``Backend``."""

    def __init__(self, model: ToyModel, max_length: int = 4096) -> None:
        self._model = model
        super().__init__(model.vocab_size, max_length, self._logits)

    def _logits(self, prefixes: Sequence[Sequence[int]]) -> Logits:
        """Return a row for what follows each of some prefixes."""
        weights = [self._model.weights(prefix) for prefix in prefixes]
        with np.errstate(divide="ignore"):  # a weight of zero is a logit of minus infinity
            return np.log(np.array(weights, dtype=np.float64).reshape(-1, self.vocab_size)).astype(np.float32)
