"""How much may be in a round that several wait for, without making any of them wait too long.

Knows time only: what rounds take that read nothing, and what each token adds that is read or drafted beside reading.
"""

from __future__ import annotations

from collections import deque
from statistics import mean, median

from outrider.backends.prefill import PIECE

# Text comes in rounds. A gap of less than four is what a reader is asked to bear, one may have been held back, and
# estimates err. So a round takes about so many times as long as the median one with what is read in it, and with what
# is drafted, too.
_READING_STRETCH = 1.8
_STRETCH = 2.4
_LEAST = 8  # tokens of a prompt in a round: it must get on, too
_LEAST_DRAFT = 16  # tokens that a draft model reads: about what its pass has room for at no cost
_WEIGHT = 0.2  # of the newest round in the average
_FIRST_GUESS = 1 / 16  # of a round, for a token: one round that happens to be short must not let all be read at once
_ROUNDS = 15  # of the last ones the median counts: their drafts make them differ
_FEW_ROUNDS = 5  # of fewer the shortest counts: what is used for the first time takes long


class Pace:
    """Learns from round to round."""

    def __init__(self) -> None:
        self._rounds: deque[tuple[float, int]] = deque(maxlen=_ROUNDS)  # seconds and draft tokens
        self._token_s: float | None = None
        self._num_since = _ROUNDS  # rounds since one that read

    @property
    def round_s(self) -> float:
        """How long a round takes that reads nothing; 0 as long as there was none."""
        average = median if len(self._rounds) >= _FEW_ROUNDS else min
        return average(seconds for seconds, _ in self._rounds) if self._rounds else 0.0

    @property
    def budget(self) -> int:
        """How many tokens to read in a round in which others are answered."""
        return max(_LEAST, self._tokens(_READING_STRETCH, is_new=self._is_new))

    def rows(self, count: int) -> int:
        """Return how many tokens may be read and drafted in such a round, for so many answers."""
        return max(self._tokens(_STRETCH), _LEAST + count)

    def draft_tokens(self, count: int, num_read: int) -> int:
        """Return how many draft tokens each of so many answers may have in a round that reads so many tokens.

        Drafts that have become longer than they were before make the round longer, and thereby what the next may take.
        """
        return max(1, (self.rows(count) - min(num_read, _LEAST)) // count)

    @property
    def draft_reading(self) -> int:
        """How many tokens drafts may read of their contexts in a round, all of them together."""
        return max(_LEAST_DRAFT, self.budget)

    def observe(self, seconds: float, num_read: int, num_drafted: int) -> None:
        """Take note of a round in which somebody was answered.

        Args:
            seconds: What it took.
            num_read: How many tokens were read beside.
            num_drafted: How many draft tokens it had.
        """
        if num_read == 0:
            self._rounds.append((seconds, num_drafted))
            self._num_since += 1
            return
        if len(self._rounds) < _FEW_ROUNDS and seconds < self.round_s:  # without reading it would not have taken longer
            self._rounds.append((seconds, num_drafted))
        if self._rounds:
            num_tokens = num_read + max(0.0, num_drafted - mean(drafted for _, drafted in self._rounds))
            token_s = max(0.0, seconds - self.round_s) / num_tokens
            before = self._token(is_new=self._is_new)
            self._token_s = before + _WEIGHT * (token_s - before)
        self._num_since = 0

    @property
    def _is_new(self) -> bool:
        """Whether what is read now has nothing to do with what was read before."""
        return self._num_since >= _ROUNDS

    def _tokens(self, stretch: float, *, is_new: bool = False) -> int:
        """Return how many tokens stretch a round so; with care where it is a new prompt that they are of."""
        if not self._rounds:
            return _LEAST
        longest_s, token_s = (stretch - 1) * self.round_s, self._token(is_new=is_new)
        return PIECE if longest_s >= PIECE * token_s else int(longest_s / token_s)

    def _token(self, *, is_new: bool) -> float:
        """Return what a token adds; what was learned of an earlier prompt, among other rounds, may be too little."""
        guess = _FIRST_GUESS * self.round_s
        if self._token_s is None:
            return guess
        return max(guess, self._token_s) if is_new else self._token_s
