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
    """

    sequence_id: int
    token_ids: Sequence[int]
    num_logits: int = 1


class Backend(Protocol):
    """A causal language model with per-sequence caches.

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
        """Free the cache of a sequence; its id is invalid from then on."""

    def length(self, sequence_id: int) -> int:
        """Return how many tokens the cache of a sequence holds."""

    def crop(self, sequence_id: int, length: int) -> None:
        """Forget every token at position ``length`` and after.

        Exact: what is computed next is what would have been computed had those tokens never been seen.

        Raises:
            UsageError: ``length`` is negative or more than the sequence holds. Nothing is changed.
        """

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """Run one pass over the rows of all given sequences.

        Args:
            batch: Each sequence at most once.

        Returns:
            ``[sum(num_logits), vocab_size]`` float32, in batch order then token order. The array belongs to the
            backend and is valid until the next ``forward`` of this backend: copy what must live longer.

        Raises:
            ContextLengthError: A sequence would outgrow ``max_length``. Nothing is changed.
            UsageError: A token id is outside the vocabulary, or a sequence is unknown or given twice.
        """
