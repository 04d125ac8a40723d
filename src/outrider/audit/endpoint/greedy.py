"""Greedy answers of two servers side by side: the same, apart at a near tie, or wrong.

Two correct engines may part where the two likeliest tokens are so close that rounding decides. The log probabilities
at the place where they part tell that from an error; without them nobody can, nor with such as are not those of the
law that the token was chosen from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from outrider.audit.endpoint.checks import Check, equality, nothing
from outrider.audit.endpoint.questions import Answer, Asker, Question
from outrider.models.fields import shown

NAME = "greedy answers"
NUM_TOP = 5
_ROUNDING = 1e-6  # of log probabilities in JSON


@dataclass(frozen=True, slots=True)
class Parting:
    """Where two greedy answers part.

    Attributes:
        place: Of the first token that differs; of the first character, where tokens are not known.
        said: What the audited server says there, and ``expected`` what the other one does; empty after an end.
        gap: By how much the other one finds its own token likelier, in nats; None if it does not say, or says that
            another is the likeliest, as do log probabilities from before penalties.
        is_least: The true gap may be larger: the token said is not among those reported, and this is the gap to the
            last of them.
    """

    prompt: str
    place: int
    said: str
    expected: str
    gap: float | None
    is_least: bool = False

    def is_near(self, near_tie: float) -> bool | None:
        """Whether rounding may have decided; None if nobody can tell."""
        if self.gap is None or (self.is_least and self.gap <= near_tie):
            return None
        return self.gap <= near_tie

    def __str__(self) -> str:
        least = "at least " if self.is_least else ""
        gap = "by an unknown gap" if self.gap is None else f"by {least}{self.gap:.3f} nats"
        return f"{shown(self.prompt)} at {self.place}: {self.said!r}, not {self.expected!r}, {gap}"


def check_greedy(audited: Asker, baseline: Asker, prompts: Sequence[str], *, max_tokens: int, near_tie: float) -> Check:
    """Compare greedy answers to each prompt.

    Args:
        audited: The server with speculation.
        baseline: The same model without.
        prompts: One question each.
        max_tokens: The length of the answers.
        near_tie: The largest gap between two log probabilities that rounding may turn, in nats.
    """
    questions = [Question(prompt, max_tokens, temperature=0.0, logprobs=NUM_TOP) for prompt in prompts]
    answers, others = audited.ask_many(questions), baseline.ask_many(questions)
    if not any(answer.text for answer in answers):
        return nothing(NAME, "all are empty; give --prompts that are answered", is_needed=True)
    return judge(NAME, prompts, answers, others, near_tie=near_tie)


def judge(
    name: str, prompts: Sequence[str], answers: Sequence[Answer], others: Sequence[Answer], *, near_tie: float
) -> Check:
    """Return what greedy answers come to beside those expected; see :func:`check_greedy`."""
    pairs = zip(prompts, answers, others, strict=True)
    partings = [parting for each in pairs if (parting := part(*each)) is not None]
    errors = [one for one in partings if one.is_near(near_tie) is False]
    unknown = [one for one in partings if one.is_near(near_tie) is None]
    if unknown and not errors:
        first = f"{len(unknown)} of {len(prompts)} part, as {unknown[0]}"
        return nothing(
            name, f"{first}; log probabilities of both servers would tell an error from a near tie", is_needed=True
        )
    equal = f"{len(prompts) - len(partings)} of {len(prompts)} are equal"
    ties = [f"{one.gap:.3f}" for one in partings if one.gap is not None]
    passed = f"{equal}, {len(ties)} part at near ties of {', '.join(ties)} nats" if ties else equal
    return equality(name, len(prompts), [str(one) for one in errors], passed)


def part(prompt: str, said: Answer, expected: Answer) -> Parting | None:
    """Return where an answer parts from the one expected; None if they are the same."""
    if said.text == expected.text:
        return None
    if said.places is None or expected.places is None:
        place = _first_difference(said.text, expected.text)
        return Parting(prompt, place, said.text[place:][:1], expected.text[place:][:1], None)
    ours, theirs = [[place.token for place in answer.places or ()] for answer in (said, expected)]
    place = _first_difference(ours, theirs)
    if place >= min(len(ours), len(theirs)):  # one ends where the other goes on, by a token that is not shown
        return Parting(prompt, place, "".join(ours[place:][:1]), "".join(theirs[place:][:1]), None)
    there = expected.places[place]
    other = there.top.get(ours[place], min(there.top.values(), default=inf))
    is_likeliest = isfinite(there.logprob) and there.logprob >= other - _ROUNDING
    gap = max(there.logprob - other, 0.0) if is_likeliest else None
    return Parting(prompt, place, ours[place], theirs[place], gap, is_least=ours[place] not in there.top)


def _first_difference(one: Sequence[str], other: Sequence[str]) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
