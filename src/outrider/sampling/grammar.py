"""Answers that follow a grammar: which tokens may come next, given what is committed and any draft after it.

llguidance keeps the parser's state. To look past draft tokens they are consumed and the question is asked; they stay
consumed, since what is asked next is mostly the place after one token more, and what is committed next the first of
them. Where it goes elsewhere, they are rolled back as far as the two ways differ. A matcher that has nothing more to
say, or whose answer has ended, is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from os.path import commonprefix
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.errors import UsageError
from outrider.sampling.processors import Ids

if TYPE_CHECKING:
    from llguidance import LLMatcher

Bits = NDArray[np.uint8]


class Grammar:
    """The state of one answer's grammar after its committed tokens.

    Args:
        make: Returns a matcher at the grammar's beginning; no two share anything.
        eos_ids: The model's end-of-sequence tokens, which are as good as one another.
        vocab_size: How many ids there are.

    Raises:
        UsageError: The grammar does not compile, or cannot be satisfied.
    """

    def __init__(self, make: Callable[[], LLMatcher], eos_ids: Ids, vocab_size: int) -> None:
        self._make = make
        self._matcher = make()
        self._committed: list[int] = []
        self._ahead: list[int] = []  # draft tokens that the matcher has consumed after them
        self._eos_ids = eos_ids
        self._ends = frozenset(eos_ids.tolist())
        self._vocab_size = vocab_size
        self._is_over = False
        self._known: dict[tuple[int, ...], Bits | None] = {}  # answers since the last commit: draft and target both ask
        self._check()

    def copy(self) -> Grammar:
        """Return the same state for another answer."""
        other = copy(self)
        other._matcher, other._known = self._matcher.deep_copy(), {}
        other._committed, other._ahead = [*self._committed], [*self._ahead]
        return other

    def advance(self, token_id: int) -> None:
        """Take note of a token that was committed; an end-of-sequence token is the last.

        Raises:
            UsageError: The grammar does not allow it, or is too complex to go on.
        """
        self._known.clear()
        self._committed.append(token_id)
        self._is_over |= token_id in self._ends
        if not self._is_over and self._ahead[:1] == [token_id]:
            del self._ahead[0]
        elif not self._is_over:
            self._go_back(0)
            self._matcher.consume_token(token_id)
            if self._matcher.is_error():
                self._renew()
            self._check()

    def allowed(self, draft_ids: Sequence[int]) -> Bits | None:
        """Return for each token a bit, whether it may follow the committed and these draft tokens.

        The lowest bit of a byte comes first: ``[ceil(vocab_size / 8)]``, not to be modified.

        None, as if all might, after a draft token that the grammar does not allow, or that ends the answer: what
        would follow it is never emitted.

        Raises:
            UsageError: The grammar is too complex to go on.
        """
        key = tuple(draft_ids)
        if key not in self._known:
            self._known[key] = self._allowed_after(list(key))
        return self._known[key]

    def _allowed_after(self, draft_ids: list[int]) -> Bits | None:
        if self._is_over or not self._ends.isdisjoint(draft_ids):
            return None
        allowed = self._look_past(draft_ids)
        if self._matcher.is_error():
            self._renew()
            allowed = self._look_past(draft_ids)
        try:
            self._check()
        except UsageError:  # what was committed is none the worse for a draft
            self._renew()
            raise
        return allowed

    def _look_past(self, draft_ids: list[int]) -> Bits | None:
        """Return what is allowed there, None if the matcher cannot be led there."""
        shared = len(commonprefix([self._ahead, draft_ids]))
        self._go_back(shared)
        rest = draft_ids[shared:]
        if rest and (self._matcher.is_stopped() or self._matcher.validate_tokens(rest) < len(rest)):
            return None
        self._matcher.consume_tokens(rest)
        self._ahead += rest
        return self._allowed_here()

    def _go_back(self, length: int) -> None:
        """Leave the matcher so many of the draft tokens that it has consumed."""
        if length < len(self._ahead):
            self._matcher.rollback(len(self._ahead) - length)
            del self._ahead[length:]

    def _renew(self) -> None:
        """Lead a new matcher to where this one should be, by the way that plain decoding takes.

        A matcher that something was too complex for stays in error, and so do its copies, with which it shares a lexer:
        that of this answer may come of a draft, or of another answer. Only what is wrong with a new one counts.
        """
        self._matcher, self._ahead = self._make(), []
        for token_id in self._committed:
            if token_id not in self._ends:
                self._matcher.compute_bitmask()  # fills the lexer's caches, which makes what follows less complex
                self._matcher.consume_token(token_id)

    def _check(self) -> None:
        """Raise an error if the matcher has one."""
        if self._matcher.is_error():
            problem = self._matcher.get_error().split("\n<state>")[0].strip()
            problem = {"NoExtensionBias": "no text satisfies it"}.get(problem, problem)
            raise UsageError(f"response_format cannot be honoured: {problem}")

    def _allowed_here(self) -> Bits:
        """Return what the matcher, where it stands, allows."""
        words = np.zeros((self._vocab_size + 31) // 32, dtype=np.uint32)
        allowed = words.view(np.uint8)[: (self._vocab_size + 7) // 8]
        is_end = self._matcher.is_stopped()
        if not is_end:
            self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
            first = self._eos_ids[0]
            is_end = bool(allowed[first >> 3] >> (first & 7) & 1)
        for token_id in self._ends:
            bit = 1 << (token_id & 7)
            allowed[token_id >> 3] = allowed[token_id >> 3] & (0xFF ^ bit) | (bit if is_end else 0)
        return allowed
