"""What a caller may say about how tokens are chosen."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.errors import UsageError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when to stop. "Off" is ``None``.

    Attributes:
        temperature: 0 is greedy: the most likely token, the lowest id on a tie.
        top_k: Keep the ``top_k`` most likely tokens.
        top_p: Keep the smallest set of most likely tokens whose probability reaches ``top_p``.
        min_p: Keep tokens at least ``min_p`` times as likely as the most likely one.
        seed: Makes the sampled text reproducible. ``None``: independent randomness for every request.
        max_tokens: The most tokens to generate.
        stop: Strings that end the text; the text ends before the first of them.
        ignore_eos: Go on past end-of-sequence tokens.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0 <= self.temperature <= 100.0, "from 0 (greedy) to 100")
        _check("top_k", self.top_k, self.top_k is None or self.top_k >= 1, "at least 1, or None to keep every token")
        _check("top_p", self.top_p, self.top_p is None or 0.0 < self.top_p <= 1.0, "above 0 and at most 1")
        _check("min_p", self.min_p, self.min_p is None or 0.0 <= self.min_p <= 1.0, "from 0 to 1")
        _check("seed", self.seed, self.seed is None or 0 <= self.seed < 2**64, "from 0 to 2**64 - 1")
        _check("max_tokens", self.max_tokens, self.max_tokens >= 1, "at least 1")
        _check("stop", self.stop, all(self.stop), "non-empty strings")

    @property
    def is_greedy(self) -> bool:
        """Whether the law of every token is the point mass on the most likely one."""
        return self.temperature == 0.0


def _check(name: str, value: object, ok: bool, limit: str) -> None:  # noqa: FBT001
    if not ok:
        raise UsageError(f"{name} is {value!r}; it must be {limit}")
