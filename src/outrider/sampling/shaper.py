"""The logits that a request's tokens are chosen from, at any number of positions after what is committed.

A draft token counts for the positions after it, in penalties, bad words and ``min_tokens``, exactly as if it had been
committed. Nothing of that is remembered: shaping is a function of the committed tokens and of the draft handed in, so
there is nothing to roll back when a draft is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider._core import copy_row
from outrider.sampling.compiled import CompiledParams
from outrider.sampling.distribution import greedy_token_ids
from outrider.sampling.params import SamplingParams
from outrider.sampling.processors import (
    TokenCounts,
    add_bias,
    completing_ids,
    exclude,
    keep_allowed,
    keep_only,
    penalise,
)
from outrider.types import Logits


class LawShaper:
    """Shapes the logits of one sequence. The target's and its drafter's alike.

    Args:
        compiled: How the sequence's tokens are chosen.
        prompt_ids: What comes before its output.
    """

    def __init__(self, compiled: CompiledParams, prompt_ids: Sequence[int]) -> None:
        self._compiled = compiled
        self._output_ids: list[int] = []
        params = compiled.params
        penalties = (params.repetition_penalty, params.presence_penalty, params.frequency_penalty)
        self._grammar = None if compiled.grammar is None else compiled.grammar.copy()
        self._counts = None if penalties == (None, None, None) else TokenCounts(prompt_ids)

    @property
    def params(self) -> SamplingParams:
        """What the caller said; its temperature and limits are not applied here."""
        return self._compiled.params

    @property
    def is_neutral(self) -> bool:
        """Whether logits come out as they went in, once there are ``min_tokens``."""
        return not self._is_lasting()

    def advance(self, token_id: int) -> None:
        """Take note of a token that was committed.

        Raises:
            UsageError: The grammar is too complex to go on.
        """
        if self._grammar is not None:
            self._grammar.advance(token_id)
        self._output_ids.append(token_id)
        if self._counts is not None:
            self._counts.add(token_id)

    def shape(self, logits: Logits, draft_ids: Sequence[int]) -> Logits:
        """Return the logits of the last ``rows`` positions among those after 0, 1, ... all draft tokens.

        Args:
            logits: ``[rows, vocab_size]``, ``rows <= len(draft_ids) + 1``. Not modified. With a row for each position
                this is what verification needs; with one row, what drawing the next draft token needs.
            draft_ids: Draft tokens after what is committed.

        Returns:
            ``[rows, vocab_size]``; the given array itself if there is nothing to do.

        Raises:
            NumericalError: There is something to do, and a row holds NaN or plus infinity, or has no token.
            UsageError: The grammar is too complex to go on.
        """
        first = len(draft_ids) + 1 - len(logits)
        busy = [self._is_busy(first + row) for row in range(len(logits))]
        if not any(busy):
            return logits
        shaped = np.empty(logits.shape, dtype=np.float32)
        taken = [copy_row(np.ascontiguousarray(row, np.float32), own) for row, own in zip(logits, shaped, strict=True)]
        if not all(taken):
            greedy_token_ids(logits)  # says what is not a number: a mask would hide it
        for count, (row, is_busy) in enumerate(zip(shaped, busy, strict=True), start=first):
            if is_busy:
                self._shape(row, draft_ids[:count])
        return shaped

    def _is_busy(self, num_draft_ids: int) -> bool:
        """Return whether there may be anything to do after so many draft tokens."""
        return self._is_lasting() or self._is_too_short(num_draft_ids)

    def _is_lasting(self) -> bool:
        """Return whether there may be something to do at every position."""
        one = self._compiled
        lasting = (self._counts, self._grammar, one.allowed_ids, one.bad_words or None)
        return any(part is not None for part in lasting) or len(one.bias_ids) > 0

    def _is_too_short(self, num_draft_ids: int) -> bool:
        return len(self._output_ids) + num_draft_ids < self.params.min_tokens

    def _shape(self, row: Logits, draft_ids: Sequence[int]) -> None:
        one = self._compiled
        if len(one.bias_ids):
            add_bias(row, one.bias_ids, one.biases)
        if self._counts is not None:
            penalise(row, *self._counts.after(draft_ids), self.params)
        if one.allowed_ids is not None:
            keep_only(row, one.allowed_ids)
        if one.bad_words:
            exclude(row, np.array(self._completing_ids(draft_ids), dtype=np.intp))
        if self._grammar is not None and (allowed := self._grammar.allowed(draft_ids)) is not None:
            keep_allowed(row, allowed)
        if self._is_too_short(len(draft_ids)):
            exclude(row, one.end_ids)

    def _completing_ids(self, draft_ids: Sequence[int]) -> list[int]:
        longest = max(map(len, self._compiled.bad_words))
        return completing_ids([*self._output_ids[-longest:], *draft_ids], self._compiled.bad_words)
