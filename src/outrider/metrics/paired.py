"""Who is faster, measured in pairs: all who are compared answer each prompt one right after the other.

A machine that slows down for a while slows everyone in a turn, so that a ratio within a turn is steadier than a rate.
Answers to one prompt are alike, so what an interval is taken over are prompts, not turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from outrider.metrics.counters import SpeculationCounters
from outrider.metrics.spread import median_interval, spread
from outrider.metrics.summary import acceptance_rate, mean_acceptance_length

MIN_DECODED = 8  # tokens to be timed in an answer; shorter ones say more about the clock


class Asked(Protocol):
    """A prompt."""

    @property
    def id(self) -> str:
        """Its name, unlike any other's."""

    @property
    def family(self) -> str | None:
        """What kind of prompt it is; None for no kind."""

    @property
    def text(self) -> str:
        """What is asked."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer and how long it took.

    Attributes:
        first_token_s: From the start to the first token.
        decode_s: From the first token to the last.
        num_first_tokens: How many tokens came at once with the first: one from the pass over the prompt, more where
            that pass checks a draft, too.
    """

    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    first_token_s: float
    decode_s: float
    counters: SpeculationCounters = field(default_factory=SpeculationCounters)
    num_first_tokens: int = 1

    @property
    def num_decoded(self) -> int:
        """How many tokens ``decode_s`` is for."""
        return len(self.token_ids) - self.num_first_tokens

    @property
    def tokens_per_s(self) -> float:
        """The rate of decoding; 0 where none came after the first."""
        return self.num_decoded / self.decode_s if self.num_decoded > 0 else 0.0


class Contestant(Protocol):
    """Answers prompts."""

    @property
    def name(self) -> str:
        """How the tables call it."""

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """Answer with at most ``num_tokens`` tokens."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What everyone answered to one prompt, one right after the other, by name."""

    prompt: Asked
    answers: Mapping[str, Answer]

    @property
    def is_rated(self) -> bool:
        """Whether all answers are long enough for their rates to mean something."""
        return min(answer.num_decoded for answer in self.answers.values()) >= MIN_DECODED


def take_turns(
    contestants: Sequence[Contestant],
    prompts: Sequence[Asked],
    *,
    repeats: int,
    num_tokens: int,
    tell: Callable[[Turn], None],
) -> list[Turn]:
    """Let everyone answer every prompt ``repeats`` times.

    Who begins changes from turn to turn. A short answer of each, not counted, comes first: memory that has never been
    touched is slow.

    Args:
        contestants: Each with a name of its own.
        prompts: At least one.
        repeats: At least 1.
        num_tokens: The most tokens of an answer.
        tell: Called after each turn.
    """
    for contestant in contestants:
        contestant.answer(prompts[0].text, min(num_tokens, MIN_DECODED))
    turns: list[Turn] = []
    for prompt in [prompt for _ in range(repeats) for prompt in prompts]:
        first = len(turns) % len(contestants)
        answered = {
            one.name: one.answer(prompt.text, num_tokens) for one in [*contestants[first:], *contestants[:first]]
        }
        turns.append(Turn(prompt, {one.name: answered[one.name] for one in contestants}))
        tell(turns[-1])
    return turns


def by_family(turns: Iterable[Turn]) -> dict[str, list[Turn]]:
    """Group turns by the family of their prompts; those of none are left out."""
    families: dict[str, list[Turn]] = {}
    for turn in turns:
        if turn.prompt.family is not None:
            families.setdefault(turn.prompt.family, []).append(turn)
    return families


def summary(turns: Sequence[Turn], baseline: str) -> dict[str, dict[str, Any]]:
    """Return, of each contestant, its rates, its ratio to the baseline's in the same turns, and its counters.

    Speeds are of rated turns only, and None without any; counters and the check of tokens are of all.
    """
    rated = [turn for turn in turns if turn.is_rated]
    document = {}
    for name in turns[0].answers if turns else ():
        counters = SpeculationCounters()
        for turn in turns:
            counters.add(turn.answers[name].counters)
        document[name] = {
            **(_speeds(name, rated, baseline) if rated else {"tokens_per_s": None}),
            f"same_tokens_as_{baseline.replace(' ', '_')}": sum(
                turn.answers[name].token_ids == turn.answers[baseline].token_ids for turn in turns
            ),
            "answers": len(turns),
            "counters": asdict(counters),
            "acceptance_rate": acceptance_rate(counters),
            "mean_acceptance_length": mean_acceptance_length(counters),
        }
    return document


def _speeds(name: str, rated: Sequence[Turn], baseline: str) -> dict[str, Any]:
    own = [turn.answers[name] for turn in rated]
    to_baseline = baseline.replace(" ", "_")
    return {
        "tokens_per_s": spread([answer.tokens_per_s for answer in own]),
        "total_tokens_per_s": total_rate(own),
        f"ratio_to_{to_baseline}": ratio_by_prompt(rated, name, baseline),
        f"total_ratio_to_{to_baseline}": total_rate(own) / total_rate([turn.answers[baseline] for turn in rated]),
        "first_token_s": spread([answer.first_token_s for answer in own]),
        "prompt_tokens_per_s": spread([answer.num_prompt_tokens / answer.first_token_s for answer in own]),
    }


def ratio_by_prompt(rated: Iterable[Turn], name: str, baseline: str) -> dict[str, Any]:
    """Return the spread of a contestant's rates by the baseline's of the same turns, with ``interval_95``.

    Each prompt counts once, with the median of its turns. The interval is None with fewer than six prompts.
    """
    prompts: dict[str, list[float]] = {}
    for turn in rated:
        ratio = turn.answers[name].tokens_per_s / turn.answers[baseline].tokens_per_s
        prompts.setdefault(turn.prompt.id, []).append(ratio)
    ratios = [float(np.median(each)) for each in prompts.values()]
    return {**spread(ratios), "interval_95": median_interval(ratios)}


def total_rate(answers: Sequence[Answer]) -> float:
    """Return all tokens over all of their time: what someone who runs the whole set gets."""
    return sum(answer.num_decoded for answer in answers) / sum(answer.decode_s for answer in answers)
