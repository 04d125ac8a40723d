"""A draft model that is spoken to in the target's tokens, and answers in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.backends.base import Backend, Rows
from outrider.backends.prefill import feed_all_but_last_piece
from outrider.drafters.transcript import Transcript
from outrider.errors import UsageError
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.types import Logits


@dataclass(slots=True)
class _Cache:
    """What the draft model holds of one sequence: its transcript from ``start`` on, as far as it was fed."""

    inner_id: int
    transcript: Transcript
    start: int = 0


class TranslatedBackend:
    """A ``Backend`` over the joint vocabulary of a target and a draft, computed by the draft.

    A row of logits says what the draft says: the joint id of a token has its logit, that of several tokens the logit of
    their sum, and an id that the draft cannot say has none (minus infinity). A softmax over the target's ids alone is
    therefore the draft's law given that its token is one of the target's, the law of token-level intersection
    (Timor et al., 2502.05202, algorithm 4).

    A sequence may be longer than the draft's context: the draft then reads the end of it. Trees are refused, since a
    token may change how the draft spells those before it.
    """

    def __init__(self, backend: Backend, vocabulary: JointVocabulary) -> None:
        """Wrap a backend.

        Args:
            backend: The draft; this is its only user.
            vocabulary: Its own vocabulary no larger than a row of the backend's logits.
        """
        self._backend = backend
        self._vocabulary = vocabulary
        self._caches: dict[int, _Cache] = {}
        self._opened = 0
        self._logits = np.empty((0, vocabulary.size), dtype=np.float32)
        # Of the tokens with one joint id, the first sets the logit and the others add to it.
        said = np.flatnonzero(vocabulary.joint_ids >= 0)
        _, firsts = np.unique(vocabulary.joint_ids[said], return_index=True)
        self._firsts = said[firsts]
        self._others = np.delete(said, firsts)
        self._first_ids, self._other_ids = vocabulary.joint_ids[self._firsts], vocabulary.joint_ids[self._others]

    @property
    def vocab_size(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return self._vocabulary.size

    @property
    def max_length(self) -> int:
        """No limit: see the class."""
        return 1 << 62

    def open_sequence(self) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        self._opened += 1
        self._caches[self._opened] = _Cache(self._backend.open_sequence(), Transcript(self._vocabulary))
        return self._opened

    def close_sequence(self, sequence_id: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        self._backend.close_sequence(self._cache(sequence_id).inner_id)
        del self._caches[sequence_id]

    def fork(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        cache = self._cache(sequence_id)
        self._opened += 1
        inner_id = self._backend.fork(cache.inner_id)
        self._caches[self._opened] = _Cache(inner_id, cache.transcript.copy(), cache.start)
        return self._opened

    def length(self, sequence_id: int) -> int:
        """See :class:`~outrider.backends.base.Backend`."""
        return len(self._cache(sequence_id).transcript)

    def crop(self, sequence_id: int, length: int) -> None:
        """See :class:`~outrider.backends.base.Backend`."""
        transcript = self._cache(sequence_id).transcript
        if not 0 <= length <= len(transcript):
            raise UsageError(f"cannot crop to {length}; the sequence holds {len(transcript)} tokens")
        transcript.crop(length)

    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None:
        """See :class:`~outrider.backends.base.Backend`; there never is a tree."""
        raise UsageError(f"sequence {sequence_id} holds no tree to keep the path {list(nodes)} of")

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See :class:`~outrider.backends.base.Backend`."""
        self._check(batch)
        if any(rows.num_logits > 1 for rows in batch):
            return np.concatenate([self._one_by_one(rows) for rows in batch])
        inner = [self._inner_rows(rows) for rows in batch]
        fed = [rows for rows in inner if rows is not None]
        logits = self._backend.forward(fed) if fed else np.empty((0, self._vocabulary.draft_size), np.float32)
        said = [mine is not None for rows, mine in zip(batch, inner, strict=True) if rows.num_logits]
        if not all(said):  # a context may say nothing at all to the draft: nor does the draft then
            logits, spoken = np.full((len(said), logits.shape[1]), -np.inf, np.float32), logits
            logits[said] = spoken
        return self._answer(logits)

    def _one_by_one(self, rows: Rows) -> Logits:
        """Return logits at several tokens, which the draft may spell otherwise than as several tokens."""
        first = len(rows.token_ids) - rows.num_logits + 1
        pieces = [rows.token_ids[:first], *([token_id] for token_id in rows.token_ids[first:])]
        num_logits = min(rows.num_logits, 1)
        passes = [Rows(rows.sequence_id, piece, num_logits) for piece in pieces if piece]
        return np.concatenate([self.forward([one]).copy() for one in passes])

    def _inner_rows(self, rows: Rows) -> Rows | None:
        """Return what the draft has to be fed, its cache cropped to what stays; None if there is nothing at all."""
        cache = self._cache(rows.sequence_id)
        transcript, limit = cache.transcript, self._backend.max_length
        transcript.extend(self._as_joint_ids(rows.token_ids))
        ids = transcript.draft_ids
        if not ids:
            return None
        held = cache.start + self._backend.length(cache.inner_id)  # less than was to be fed, if a pass failed
        num_fed = min(transcript.num_unchanged, len(ids) - 1, held)
        if len(ids) - cache.start > limit or num_fed < cache.start:
            cache.start = num_fed = 0 if len(ids) <= limit else len(ids) - (limit + 1) // 2
        try:
            self._backend.crop(cache.inner_id, num_fed - cache.start)
        except UsageError:  # its window has left that behind
            num_fed = cache.start
            self._backend.crop(cache.inner_id, 0)
        transcript.num_unchanged = len(ids)
        pending = feed_all_but_last_piece(self._backend, cache.inner_id, ids[num_fed:])
        return Rows(cache.inner_id, pending, rows.num_logits)

    def _as_joint_ids(self, token_ids: Sequence[int]) -> Sequence[int]:
        return token_ids

    def _answer(self, logits: Logits) -> Logits:
        """Return rows of the draft's logits as rows over the joint vocabulary."""
        if len(logits) > len(self._logits):
            self._logits = np.full((len(logits), self._vocabulary.size), -np.inf, dtype=np.float32)
        for joint, row in zip(self._logits, logits, strict=False):
            joint[self._first_ids] = row[self._firsts]
            if len(self._others):
                np.logaddexp.at(joint, self._other_ids, row[self._others])
        return self._logits[: len(logits)]

    def _cache(self, sequence_id: int) -> _Cache:
        if sequence_id not in self._caches:
            raise UsageError(f"sequence {sequence_id} is not open")
        return self._caches[sequence_id]

    def _check(self, batch: Sequence[Rows]) -> None:
        if len({rows.sequence_id for rows in batch}) != len(batch):
            raise UsageError("a sequence is given twice in one pass")
        for rows in batch:
            if rows.parents is not None:
                raise UsageError("a draft of another vocabulary takes no trees; draft a chain")
            if not 0 <= rows.num_logits <= len(rows.token_ids) or not rows.token_ids:
                raise UsageError(f"{rows.num_logits} rows of logits wanted of {len(rows.token_ids)} tokens")
            for token_id in rows.token_ids:
                if not 0 <= token_id < self.vocab_size:
                    raise UsageError(f"token id {token_id} is outside the vocabulary, 0 to {self.vocab_size - 1}")


class OwnTokensBackend(TranslatedBackend):
    """The same in a numbering for a draft that says its own tokens: its ids, then the target's, which it only reads.

    A row of logits is the draft's own, as wide as its vocabulary.
    """

    def __init__(self, backend: Backend, vocabulary: JointVocabulary) -> None:
        """See :class:`TranslatedBackend`."""
        super().__init__(backend, vocabulary)
        self._joint_ids = [*vocabulary.joint_ids.tolist(), *range(vocabulary.target_size)]

    @property
    def vocab_size(self) -> int:
        """How many ids are read."""
        return len(self._joint_ids)

    def _as_joint_ids(self, token_ids: Sequence[int]) -> Sequence[int]:
        return [self._joint_ids[token_id] for token_id in token_ids]

    def _answer(self, logits: Logits) -> Logits:
        return logits
