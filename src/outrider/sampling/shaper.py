"""The logits that a request's tokens are chosen from, at any number of positions after what is committed.

A draft token counts for the positions after it, in penalties, bad words and ``min_tokens``, exactly as if it had been
committed. Nothing of that is remembered: shaping is a function of the committed tokens and of the draft handed in, so
there is nothing to roll back when a draft is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outrider._core import shape_row
from outrider.sampling.compiled import CompiledParams
from outrider.sampling.distribution import greedy_token_ids
from outrider.sampling.grammar import Bits
from outrider.sampling.params import SamplingParams
from outrider.sampling.processors import Ids, TokenCounts, completing_ids
from outrider.types import Logits

_NO_IDS: Ids = np.empty(0, dtype=np.intp)


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
        parts = (self._counts, self._grammar, compiled.allowed, compiled.bad_words or None)
        self._is_lasting = any(part is not None for part in parts) or len(compiled.bias_ids) > 0

    @property
    def params(self) -> SamplingParams:
        """What the caller said; its temperature and limits are not applied here."""
        return self._compiled.params

    @property
    def is_neutral(self) -> bool:
        """Whether logits come out as they went in, once there are ``min_tokens``."""
        return not self._is_lasting

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

    def shape(self, logits: Logits, draft_ids: Sequence[int], *, out: Logits | None = None) -> Logits:
        """Return the logits of the last ``rows`` positions among those after 0, 1, ... all draft tokens.

        Args:
            logits: ``[rows, vocab_size]``, ``rows <= len(draft_ids) + 1``. Not modified, unless it is ``out``. With a
                row for each position this is what verification needs; with one row, what drawing the next draft token
                needs.
            draft_ids: Draft tokens after what is committed.
            out: Where to write, as large, float32 and contiguous in each row; by default an array of its own.

        Returns:
            ``[rows, vocab_size]``; the given array itself if there is nothing to do.

        Raises:
            NumericalError: There is something to do for a row that holds NaN or plus infinity, or has no token.
            UsageError: The grammar is too complex to go on.
        """
        first = len(draft_ids) + 1 - len(logits)
        busy = [self.is_busy(first + row) for row in range(len(logits))]
        if not any(busy):
            return logits
        shaped = np.empty(logits.shape, dtype=np.float32) if out is None else out
        if shaped is not logits:
            shaped[:] = logits
        for count, (row, is_busy) in enumerate(zip(shaped, busy, strict=True), start=first):
            if is_busy and not self._shape(row, draft_ids[:count]):
                greedy_token_ids(logits)  # says what is not a number: a mask would hide it
        return shaped

    def is_busy(self, num_draft_ids: int) -> bool:
        """Return whether there may be anything to do after so many draft tokens."""
        return self._is_lasting or self._is_too_short(num_draft_ids)

    def _is_too_short(self, num_draft_ids: int) -> bool:
        return len(self._output_ids) + num_draft_ids < self.params.min_tokens

    def _shape(self, row: Logits, draft_ids: Sequence[int]) -> bool:
        """Shape a row in place; return whether it was one of numbers; if not, what is none is still there."""
        one, params = self._compiled, self.params
        ids, counts = (_NO_IDS, _NO_IDS) if self._counts is None else self._counts.after(draft_ids)
        return shape_row(
            row,
            bias_ids=one.bias_ids,
            biases=one.biases,
            seen_ids=ids,
            output_counts=counts,
            excluded_ids=self._excluded(draft_ids),
            repetition_penalty=params.repetition_penalty or 1.0,
            presence_penalty=params.presence_penalty or 0.0,
            frequency_penalty=params.frequency_penalty or 0.0,
            allowed=self._allowed(draft_ids),
        )

    def _excluded(self, draft_ids: Sequence[int]) -> Ids:
        """Return what neither bad words nor ``min_tokens`` let follow."""
        ends = self._compiled.end_ids if self._is_too_short(len(draft_ids)) else _NO_IDS
        if not self._compiled.bad_words:
            return ends
        return np.array([*self._completing_ids(draft_ids), *ends], dtype=np.intp)

    def _allowed(self, draft_ids: Sequence[int]) -> Bits | None:
        """Return a bit for each token that both ``allowed_token_ids`` and the grammar let follow; None for all."""
        by_grammar = None if self._grammar is None else self._grammar.allowed(draft_ids)
        allowed = self._compiled.allowed
        return allowed if by_grammar is None else by_grammar if allowed is None else allowed & by_grammar

    def _completing_ids(self, draft_ids: Sequence[int]) -> list[int]:
        longest = max(map(len, self._compiled.bad_words))
        return completing_ids([*self._output_ids[-longest:], *draft_ids], self._compiled.bad_words)
