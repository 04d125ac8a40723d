"""Answers that follow a grammar: which tokens may come next, given what is committed and any draft after it.

llguidance keeps the parser's state; here it is the state after the committed tokens, always. To look past draft tokens
they are consumed, the question is asked, and they are rolled back at once. A matcher that has nothing more to say, or
whose answer has ended, is not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.errors import UsageError
from outrider.sampling.processors import Ids

if TYPE_CHECKING:
    from llguidance import LLMatcher

Mask = NDArray[np.bool_]


class Grammar:
    """The state of one answer's grammar after its committed tokens.

    Args:
        matcher: At the grammar's beginning; shared among answers and left as it is.
        eos_ids: The model's end-of-sequence tokens, which are as good as one another.
        vocab_size: How many ids there are.
    """

    def __init__(self, matcher: LLMatcher, eos_ids: Ids, vocab_size: int) -> None:
        self._start = matcher
        self._matcher = matcher.deep_copy()
        self._committed: list[int] = []
        self._eos_ids = eos_ids
        self._ends = frozenset(eos_ids.tolist())
        self._vocab_size = vocab_size
        self._is_over = False
        self._known: dict[tuple[int, ...], Mask | None] = {}  # answers since the last commit: draft and target both ask

    def copy(self) -> Grammar:
        """Return the same state for another answer."""
        other = Grammar(self._start, self._eos_ids, self._vocab_size)
        for token_id in self._committed:
            other.advance(token_id)
        return other

    def advance(self, token_id: int) -> None:
        """Take note of a token that was committed; an end-of-sequence token is the last.

        Raises:
            UsageError: The grammar does not allow it, or is too complex to go on.
        """
        self._known.clear()
        self._committed.append(token_id)
        self._is_over |= token_id in self._ends
        if not self._is_over:
            self._matcher.consume_token(token_id)
            self.check()

    def excluded(self, draft_ids: Sequence[int]) -> Mask | None:
        """Return for each token ``[vocab_size]`` whether it may not follow the committed and these draft tokens.

        None, for none is excluded, after a draft token that the grammar does not allow, or that ends the answer: what
        would follow it is never emitted.

        Raises:
            UsageError: The grammar is too complex to go on.
        """
        key = tuple(draft_ids)
        if key not in self._known:
            self._known[key] = self._excluded_after(list(key))
        return self._known[key]

    def check(self) -> None:
        """Raise an error if the matcher has one."""
        if self._matcher.is_error():
            problem = self._matcher.get_error().split("\n<state>")[0].strip()
            problem = {"NoExtensionBias": "no text satisfies it"}.get(problem, problem)
            raise UsageError(f"response_format cannot be honoured: {problem}")

    def _excluded_after(self, draft_ids: list[int]) -> Mask | None:
        if not self._can_follow(draft_ids):
            return None
        self._matcher.consume_tokens(draft_ids)
        excluded = self._excluded_here()
        self._matcher.rollback(len(draft_ids))
        try:
            self.check()
        except UsageError:  # a matcher stays in error for ever, and what was committed is none the worse for a draft
            self._matcher = self._start.deep_copy()
            self._matcher.consume_tokens([token_id for token_id in self._committed if token_id not in self._ends])
            raise
        return excluded

    def _can_follow(self, draft_ids: list[int]) -> bool:
        """Return whether the matcher can be led past these tokens."""
        if self._is_over or not self._ends.isdisjoint(draft_ids):
            return False
        if not draft_ids:
            return True
        return not self._matcher.is_stopped() and self._matcher.validate_tokens(draft_ids) == len(draft_ids)

    def _excluded_here(self) -> Mask:
        """Return what the matcher, where it stands, does not allow."""
        if self._matcher.is_stopped():
            is_allowed = np.zeros(self._vocab_size, dtype=np.bool_)
            is_allowed[self._eos_ids] = True
        else:
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            is_allowed = np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(np.bool_)
            is_allowed[self._eos_ids] = is_allowed[self._eos_ids[0]]
        return ~is_allowed
