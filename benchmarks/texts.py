"""The prompts file: one JSON object a line, with ``id``, ``family`` and ``prompt``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

PROMPTS = Path(__file__).with_name("data") / "prompts.jsonl"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of the prompts file."""

    id: str
    family: str
    text: str


def read_prompts(path: Path) -> list[Prompt]:
    """Read the whole file, in its order."""
    with path.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [Prompt(record["id"], record["family"], record["prompt"]) for record in records]


def by_family(prompts: list[Prompt]) -> dict[str, list[Prompt]]:
    """Group prompts, keeping the order of families and of prompts."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.family, []).append(prompt)
    return groups


def pick(prompts: list[Prompt], per_family: int) -> list[Prompt]:
    """Return the first ``per_family`` prompts of every family."""
    return [prompt for group in by_family(prompts).values() for prompt in group[:per_family]]


def choose(prompts: list[Prompt], families: list[str] | None, per_family: int) -> list[Prompt]:
    """Return the first ``per_family`` prompts of some families; of all with None."""
    return pick([prompt for prompt in prompts if families is None or prompt.family in families], per_family)


def family_texts(prompts: list[Prompt]) -> dict[str, str]:
    """Return one long text per family: its prompts, an empty line between them."""
    return {family: "\n\n".join(prompt.text for prompt in group) for family, group in by_family(prompts).items()}
