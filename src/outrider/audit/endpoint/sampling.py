"""Sampled answers: against those of the same model without speculation, and against what the server says of its law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from outrider.audit.comparison import LEAST_GROUP, Draw, by_beginning, compare
from outrider.audit.endpoint.checks import Check, equality, nothing
from outrider.audit.endpoint.questions import Answer, Place
from outrider.audit.evidence import Fit
from outrider.audit.sequential import NUM_BINS, place
from outrider.audit.statistics import Cells, pooled

LAW, CLAIMED = "sampled answers", "tokens and their reported law"
PLACES, POSSIBLE = "places in the reported law", "no impossible tokens"
NUM_TOP = 20  # the most that OpenAI's chats report
# Two programs differ in rounding and in how they quantise activations; the laws of short answers, by up to this much.
ARITHMETIC_TV = 0.02
_REST, _LEAST_REST = "<rest>", 1e-9  # all tokens that are not reported, which rounding may leave nothing
_END, _CUT = "<end>", "<cut>"  # the last unit of an answer: that it ended, or was cut
_MOST_TOKENS = 1 << 18  # of any vocabulary


def check_law(
    ours: Mapping[str, Sequence[Answer]], theirs: Mapping[str, Sequence[Answer]], *, same_engine: bool, level: float
) -> Check:
    """Compare the sampled answers of two servers, prompt by prompt.

    Args:
        ours: Of the audited server.
        theirs: Of the same model without speculation.
        same_engine: Whether one program answered both times, so that arithmetic explains nothing.
        level: The chance of a false alarm.
    """
    for side, answers in (("the audited server", ours), ("the baseline", theirs)):
        if all(len({answer.text for answer in each}) == 1 < len(each) for each in answers.values()):
            return nothing(
                LAW,
                f"{side} gives the same answer to a prompt every time: it ignores the temperature, draws the same "
                "random numbers for every request, or is certain; let it draw anew, or give other --prompts",
                is_needed=True,
            )
    sides = [{prompt: [units(one) for one in answers] for prompt, answers in side.items()} for side in (ours, theirs)]
    evidence, distance = compare(LAW, *sides)
    if not evidence.groups:
        return nothing(
            LAW,
            "too few answers to a prompt begin alike to compare them; raise --budget, or give --prompts that have few "
            "likely answers",
            is_needed=True,
        )
    p_value = evidence.finding().p_value
    seen = f"p = {p_value:.2g}, {distance}, {sum(map(len, ours.values()))} answers"
    if p_value < level and not same_engine and distance.low <= ARITHMETIC_TV:
        return nothing(
            LAW,
            f"they differ ({seen}), but by so little that the two programs' arithmetic may be why; compare with the "
            "same server without speculation: --baseline-url",
            is_needed=True,
        )
    return Check(evidence, seen)


def units(answer: Answer) -> Draw:
    """Return an answer's characters and how it ended: many servers do not say which tokens they drew."""
    return (*answer.text, _CUT if answer.finish_reason == "length" else _END)


def check_claimed(
    drawn: Mapping[str, Sequence[Answer]], rng: np.random.Generator, level: float, *, is_needed: bool
) -> list[Check]:
    """Compare sampled tokens with the law that the server itself reports at their places.

    Where many answers begin alike, the tokens that come next are counted. Of all the others, each is put at a uniform
    place in its own stretch of its law, which makes all places uniform if tokens are drawn from it
    (:func:`outrider.audit.sequential.place`). Tokens that are not among those reported share a cell, and a stretch.

    Args:
        drawn: Sampled answers with log probabilities, by prompt.
        rng: Where in its stretch a token is put.
        level: The chance of a false alarm.
        is_needed: Whether there is nothing else to compare sampled answers with.
    """
    every = [one for answers in drawn.values() for answer in answers for one in answer.places or ()]
    places = [one for one in every if one.top and not _is_ambiguous(one.top)]
    if not places or not all(one.top for one in every):  # whether a token was accepted may decide, and depends on it
        told = sum(bool(one.top) for one in every)
        needed = f"the server reports likeliest tokens at {told} of {len(every)} places of sampled answers"
        return [nothing(CLAIMED, needed, is_needed=is_needed), nothing(PLACES, needed), nothing(POSSIBLE, needed)]
    groups = [cells for answers in drawn.values() for cells in _cells(answers)]
    claimed = Check(
        evidence := Fit(CLAIMED, tuple(groups)), f"p = {evidence.finding().p_value:.2g}, {evidence.num} tokens"
    )
    if not groups:
        claimed = nothing(CLAIMED, "too few answers to a prompt begin alike; raise --budget", is_needed=is_needed)
    counts = [0] * NUM_BINS
    for one in places:
        counts[_place(one, rng.random())] += 1
    spread = Fit(PLACES, (Cells(tuple(counts), (1 / NUM_BINS,) * NUM_BINS),))
    # That any token below this is drawn has a chance of at most ``level``.
    limit = math.log(level / (_MOST_TOKENS * len(places)))
    wrong = [f"{one.token!r}, whose logprob is {one.logprob:.1f}" for one in places if one.logprob < limit]
    return [
        claimed,
        Check(spread, f"p = {spread.finding().p_value:.2g}, {len(places)} tokens"),
        equality(POSSIBLE, len(places), wrong, f"none of {len(places)} has a logprob below {limit:.0f}"),
    ]


def _cells(answers: Sequence[Answer]) -> Iterator[Cells]:
    """Yield how often each token came next, and its reported probability, for all ways to begin that are common."""
    laws: dict[Draw, Mapping[str, float]] = {}
    draws = []
    for answer in answers:
        places = answer.places or ()
        tokens = tuple(place.token for place in places)
        draws.append(tokens)
        for index, one in enumerate(places):
            laws.setdefault(tokens[:index], one.top)
    for start, seen in by_beginning(draws).items():
        if seen.total() < LEAST_GROUP or _is_ambiguous(laws[start]):
            continue
        probs = {token: math.exp(logprob) for token, logprob in laws[start].items()}
        probs |= {_REST: max(_LEAST_REST, 1 - sum(probs.values()))}
        total = sum(probs.values())
        counts = [seen[token] for token in laws[start]]
        yield pooled([*counts, seen.total() - sum(counts)], [prob / total for prob in probs.values()])


def _is_ambiguous(top: Mapping[str, float]) -> bool:
    """Whether a reported token is a part of a character, which other parts are spelled like: U+FFFD without its bytes.

    It depends on the law alone, not on what was drawn: so what is left out for it says nothing of how tokens are drawn.
    """
    return any("\ufffd" in token and not token.endswith("]") for token in top)


def _place(one: Place, uniform: float) -> int:
    before = 0.0
    for token, logprob in sorted(one.top.items(), key=lambda item: (-item[1], item[0])):
        if token == one.token:
            return place(before, math.exp(logprob), uniform)
        before += math.exp(logprob)
    before = min(before, 1.0)
    return place(before, 1 - before, uniform)
