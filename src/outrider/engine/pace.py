"""How much of a prompt may be read in a round without making those wait who are being answered. Knows time only."""

from __future__ import annotations

from collections import deque
from statistics import median

from outrider.backends.prefill import PIECE

# A round that reads takes about so many times as long as one that does not. Text comes in rounds: a gap of less than
# four is what a reader is asked to bear, rounds differ, and estimates err.
_STRETCH = 2.25
_LEAST = 8  # tokens of a prompt in a round: it must get on, too
_LEAST_DRAFT = 16  # tokens that a draft model reads: about what its pass has room for at no cost
_WEIGHT = 0.2  # of the newest round in the average
_ROUNDS = 15  # of the last ones the median is what a round takes: their drafts make them differ


class Pace:
    """Learns what rounds and the reading of a token beside them take, from round to round."""

    def __init__(self) -> None:
        self._rounds: deque[float] = deque(maxlen=_ROUNDS)
        self._token_s: float | None = None

    @property
    def budget(self) -> int:
        """How many tokens to read in a round in which others are answered."""
        if not self._rounds or self._token_s is None:
            return _LEAST
        if self._token_s <= 0:
            return PIECE
        return min(PIECE, max(_LEAST, int((_STRETCH - 1) * median(self._rounds) / self._token_s)))

    def share(self, count: int) -> int:
        """Return how many tokens each of so many drafts may read in such a round."""
        return max(_LEAST_DRAFT, self.budget // max(1, count))

    def observe(self, seconds: float, is_answering: bool, num_read: int) -> None:  # noqa: FBT001
        """Take note of a round.

        Args:
            seconds: What it took.
            is_answering: Whether there was anything but reading. What is read by itself costs less a token, for it is
                read in larger pieces, and says nothing.
            num_read: How many tokens were read beside.
        """
        if not is_answering:
            return
        if num_read == 0:
            self._rounds.append(seconds)
        elif self._rounds:
            reading_s = max(0.0, seconds - median(self._rounds)) / num_read
            before = reading_s if self._token_s is None else self._token_s
            self._token_s = before + _WEIGHT * (reading_s - before)
