"""How much of a prompt may be read in a round without making those wait who are being answered. Knows time only."""

from __future__ import annotations

from outrider.backends.prefill import PIECE

# A round that reads takes at most about so many times as long as one that does not. Text comes in rounds: a gap of
# less than four is what a reader is asked to bear, and estimates err.
_STRETCH = 2.0
_LEAST = 16  # tokens: about what a pass has room for at no cost
_WEIGHT = 0.2  # of the newest round in the averages


class Pace:
    """Learns what rounds and the reading of a token take, from round to round."""

    def __init__(self) -> None:
        self._round_s: float | None = None
        self._token_s: float | None = None

    @property
    def budget(self) -> int:
        """How many tokens to read in a round in which others are answered."""
        if self._round_s is None or self._token_s is None:
            return 2 * _LEAST
        if self._token_s <= 0:
            return PIECE
        return min(PIECE, max(_LEAST, int((_STRETCH - 1) * self._round_s / self._token_s)))

    def share(self, count: int) -> int:
        """Return how many tokens each of so many drafts may read in such a round."""
        return max(_LEAST, self.budget // max(1, count))

    def observe(self, seconds: float, is_answering: bool, num_read: int) -> None:  # noqa: FBT001
        """Take note of a round.

        Args:
            seconds: What it took.
            is_answering: Whether there was anything but reading.
            num_read: How many tokens were read beside.
        """
        if num_read == 0:
            self._round_s = _average(self._round_s, seconds)
        elif not is_answering or self._round_s is not None:
            reading_s = seconds - (self._round_s or 0.0 if is_answering else 0.0)
            self._token_s = _average(self._token_s, max(reading_s, 0.0) / num_read)


def _average(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)
