"""The contract between the engine and whatever computes logits.

A backend holds one model and the caches of many sequences. It knows nothing of sampling, drafts, text or requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.types import Logits


@dataclass(frozen=True, slots=True)
class Rows:
    """Tokens to append to one sequence's cache in a pass.

    Attributes:
        sequence_id: From :meth:`Backend.open_sequence`.
        token_ids: At least one token; the first goes to position ``length(sequence_id)``.
        num_logits: For how many of the last tokens logits are wanted, ``0 <= num_logits <= len(token_ids)``.
        parents: Makes the tokens the nodes of a tree: for each the index in ``token_ids`` of the one it follows, or -1
            where it follows what is cached. Parents come before their children, so ``parents[i] < i``. A node's
            position is that of its parent plus one, and its logits are those of the chain that leads to it, bit for
            bit. ``None`` is a chain, as ``[-1, 0, 1, ...]`` would be, but leaves nothing to :meth:`Backend.keep_path`.
    """

    sequence_id: int
    token_ids: Sequence[int]
    num_logits: int = 1
    parents: Sequence[int] | None = None


class Backend(Protocol):
    """A causal language model with per-sequence caches.

    After a pass with ``parents`` a sequence holds a tree, until :meth:`keep_path` or :meth:`crop` resolves it. Until
    then it takes no other pass and no fork.

    The row-independence rule: the logits of a row depend on that row's own token and context only, bit for bit, never
    on the other rows of the pass, on their number, or on how a prompt was cut into passes.
    """

    @property
    def vocab_size(self) -> int:
        """Width of a row of logits."""

    @property
    def max_length(self) -> int:
        """The most tokens that one sequence's cache may hold."""

    def open_sequence(self) -> int:
        """Return the id of a new sequence with an empty cache."""

    def close_sequence(self, sequence_id: int) -> None:
        """Free the cache of a sequence; its id is invalid from then on. What forks share lives on in the others."""

    def fork(self, sequence_id: int) -> int:
        """Return the id of a new sequence that holds what this one holds; what both go on to hold is their own.

        Raises:
            UsageError: The sequence holds a tree.
        """

    def length(self, sequence_id: int) -> int:
        """Return how many tokens the cache of a sequence holds, every node of a tree counted."""

    def crop(self, sequence_id: int, length: int) -> None:
        """Forget every token at position ``length`` and after, and with them the whole of a tree.

        Exact: what is computed next is what would have been computed had those tokens never been seen.

        Raises:
            UsageError: ``length`` is negative or more than the sequence holds, or held before its tree. Nothing is
                changed.
        """

    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None:
        """Forget the last pass's tree but for one path from its root, and so make it a chain.

        Exact, as :meth:`crop` is.

        Args:
            sequence_id: A sequence that holds a tree.
            nodes: Indices in the ``token_ids`` of that pass, each the parent of the next, the first one's parent -1.
                None at all forgets the whole tree.

        Raises:
            UsageError: The sequence holds no tree, or ``nodes`` is no such path. Nothing is changed.
        """

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """Run one pass over the rows of all given sequences.

        Args:
            batch: Each sequence at most once.

        Returns:
            ``[sum(num_logits), vocab_size]`` float32, in batch order then token order. The array belongs to the
            caller until the next ``forward`` of this backend, who may write to it, but not raise what is minus
            infinity: copy what must live longer.

        Raises:
            ContextLengthError: A sequence would outgrow ``max_length``, every node of a tree counted. Nothing is
                changed.
            UsageError: A token id is outside the vocabulary, ``parents`` is no tree, or a sequence is unknown, given
                twice, or holds a tree.
        """
