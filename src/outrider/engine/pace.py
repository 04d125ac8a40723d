"""How much may be in a round beside a prompt that is read, without making those wait who are being answered.

Knows time only: what rounds take that read nothing, and what each token adds that is read or drafted beside reading.
"""

from __future__ import annotations

from collections import deque
from statistics import mean, median

from outrider.backends.prefill import PIECE

# Text comes in rounds. A gap of less than four is what a reader is asked to bear, and estimates err. So a round takes
# about so many times as long as the median one with what is read in it, and with what is drafted, too.
_READING_STRETCH = 2.25
_STRETCH = 2.75
_LEAST = 8  # tokens of a prompt in a round: it must get on, too
_LEAST_DRAFT = 16  # tokens that a draft model reads: about what its pass has room for at no cost
_WEIGHT = 0.2  # of the newest round in the average
_FIRST_GUESS = 1 / 16  # of a round, for a token: one round that happens to be short must not let all be read at once
_ROUNDS = 15  # of the last ones the median counts: their drafts make them differ


class Pace:
    """Learns from round to round."""

    def __init__(self) -> None:
        self._rounds: deque[tuple[float, int]] = deque(maxlen=_ROUNDS)  # seconds and draft tokens
        self._token_s: float | None = None

    @property
    def budget(self) -> int:
        """How many tokens to read in a round in which others are answered."""
        return max(_LEAST, self._tokens(_READING_STRETCH))

    def rows(self, count: int) -> int:
        """Return how many tokens may be read and drafted in such a round, for so many answers."""
        return max(self._tokens(_STRETCH), _LEAST + count)

    def draft_tokens(self, count: int) -> int:
        """Return how many draft tokens each of so many answers may have in such a round."""
        return (self.rows(count) - _LEAST) // count

    def draft_reading(self, count: int) -> int:
        """Return how many tokens each of so many drafts may read of its context before it drafts."""
        return max(_LEAST_DRAFT, self.budget // max(1, count))

    def observe(self, seconds: float, num_read: int, num_drafted: int) -> None:
        """Take note of a round in which somebody was answered.

        Args:
            seconds: What it took.
            num_read: How many tokens were read beside.
            num_drafted: How many draft tokens it had.
        """
        if num_read == 0:
            self._rounds.append((seconds, num_drafted))
        elif self._rounds:
            num_tokens = num_read + max(0.0, num_drafted - mean(drafted for _, drafted in self._rounds))
            token_s = max(0.0, seconds - self._round_s()) / num_tokens
            before = _FIRST_GUESS * self._round_s() if self._token_s is None else self._token_s
            self._token_s = before + _WEIGHT * (token_s - before)

    def _tokens(self, stretch: float) -> int:
        """Return how many tokens stretch a round so."""
        if not self._rounds or self._token_s is None:
            return _LEAST
        longest_s = (stretch - 1) * self._round_s()
        return PIECE if longest_s >= PIECE * self._token_s else int(longest_s / self._token_s)

    def _round_s(self) -> float:
        return median(seconds for seconds, _ in self._rounds)
