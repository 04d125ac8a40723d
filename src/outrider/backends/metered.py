"""A backend that notes its passes."""

from __future__ import annotations

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, field

from outrider.backends.base import Backend, Rows
from outrider.types import Logits


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a model.

    Attributes:
        model: Whose.
        batch: For each sequence how many tokens were fed, and how many its cache held before.
        seconds: How long it took.
        num_logits: For how many of the tokens logits were wanted.
    """

    model: str
    batch: tuple[tuple[int, int], ...]
    seconds: float
    num_logits: int = 0

    @property
    def rows(self) -> int:
        """How many tokens were fed, of all sequences."""
        return sum(rows for rows, _ in self.batch)

    @property
    def length(self) -> int:
        """How many tokens the longest of their caches held before."""
        return max(length for _, length in self.batch)


@dataclass(slots=True)
class MeteredBackend:
    """Another :class:`~outrider.backends.base.Backend`, whose passes are noted.

    Attributes:
        backend: The other.
        model: What it is called.
        clock: Seconds from any fixed moment.
        passes: Those since somebody last emptied it, or the last of them.
    """

    backend: Backend
    model: str
    clock: Callable[[], float]
    passes: MutableSequence[Pass] = field(default_factory=list)

    @property
    def vocab_size(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self.backend.vocab_size

    @property
    def max_length(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self.backend.max_length

    def open_sequence(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self.backend.open_sequence()

    def close_sequence(self, sequence_id: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self.backend.close_sequence(sequence_id)

    def fork(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self.backend.fork(sequence_id)

    def length(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self.backend.length(sequence_id)

    def crop(self, sequence_id: int, length: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self.backend.crop(sequence_id, length)

    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self.backend.keep_path(sequence_id, nodes)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See :class:`~outrider.backends.base.Backend`; note the pass."""
        shape = tuple((len(rows.token_ids), self.backend.length(rows.sequence_id)) for rows in batch)
        started_at = self.clock()
        logits = self.backend.forward(batch)
        seconds = self.clock() - started_at
        self.passes.append(Pass(self.model, shape, seconds, sum(rows.num_logits for rows in batch)))
        return logits
