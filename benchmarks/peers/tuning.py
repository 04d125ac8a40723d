"""Finds the setting that each engine is best in, by short answers to a prompt of code and to two others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TypeAlias

from benchmarks.peers.roster import Complete, Entry
from benchmarks.texts import Prompt
from outrider import LLM

MOST_TOKENS = 64  # of an answer: what is looked up comes late, and slow engines take their time
CODE, OTHERS = "code", "others"
_CODE_FAMILY, _OTHER_FAMILIES = "humaneval", 2
# Tokens per second by temperature and kind of prompt, or what went wrong.
Tuned: TypeAlias = dict[str, dict[str, float]]


def tuning_prompts(prompts: Sequence[Prompt]) -> dict[str, list[Prompt]]:
    """Return by kind the first prompt of code, and the first of each of two other families, if there are such."""
    first: dict[str, Prompt] = {}
    for prompt in prompts:
        first.setdefault(prompt.family, prompt)
    others = [prompt for family, prompt in first.items() if family != _CODE_FAMILY]
    return {
        CODE: [prompt for family, prompt in first.items() if family == _CODE_FAMILY],
        OTHERS: others[:_OTHER_FAMILIES],
    }


def tune(
    complete: Complete,
    llm: LLM,
    prompts: Mapping[str, Sequence[Prompt]],
    temperatures: Sequence[float],
    num_tokens: int,
) -> Tuned:
    """Return how fast an engine answers: the median over prompts of a kind, after an answer that warms it up.

    Args:
        complete: What asks it.
        llm: Makes tokens of prompts.
        prompts: By kind.
        temperatures: To answer at.
        num_tokens: The most tokens of an answer, and no more than ``MOST_TOKENS``.

    Raises:
        RuntimeError: It has ended.
    """
    kinds = {kind: [llm.encode(prompt.text) for prompt in own] for kind, own in prompts.items() if own}
    complete(next(iter(kinds.values()))[0], 2, 0.0)
    return {
        f"temperature {temperature:g}": {
            kind: median(complete(ids, min(num_tokens, MOST_TOKENS), temperature).tokens_per_s for ids in own)
            for kind, own in kinds.items()
        }
        for temperature in temperatures
    }


def rivals(entries: Sequence[Entry]) -> list[Entry]:
    """Return the settings of those engines that are given several: there is something to choose."""
    count = Counter(entry.peer for entry in entries)
    return [entry for entry in entries if count[entry.peer] > 1]


def bests(
    entries: Sequence[Entry], tuned: Mapping[str, Tuned], temperatures: Iterable[float]
) -> dict[float, list[str]]:
    """Return by temperature the settings in which an engine is best, on code or on the others, in their order.

    Args:
        entries: All that may be best; the only one of an engine is.
        tuned: By setting; one that is missing does not work.
        temperatures: That were answered at.
    """
    found: dict[float, list[str]] = {}
    for temperature in temperatures:
        chosen = {entry.name for entry in entries} - {entry.name for entry in rivals(entries)}
        for peer in {entry.peer for entry in entries}:
            own = [entry.name for entry in entries if entry.peer == peer and entry.name in tuned]
            for kind in (CODE, OTHERS):
                rates = {name: tuned[name][f"temperature {temperature:g}"].get(kind, 0.0) for name in own}
                if any(rates.values()):
                    chosen.add(max(rates, key=lambda name: rates[name]))
        found[temperature] = [entry.name for entry in entries if entry.name in chosen]
    return found
