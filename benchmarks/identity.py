"""Is greedy text the same, token id by token id, with and without speculation?

    python -m benchmarks.identity --target T --draft D --per-family 6 --out R.json

Compares plain decoding with the draft model at each of ``--draft-lengths`` and with n-gram drafts, on prompts of every
family. Prints every difference; exits with status 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contestants import load_contestants
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, by_family, pick, read_prompts

QUESTION = "Differences in greedy token ids between plain and speculative decoding"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer first leaves the plain one; None stands for an answer that ended."""

    prompt_id: str
    contestant: str
    position: int
    plain_token_id: int | None
    token_id: int | None


def first_difference(plain: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int | None, int | None] | None:
    """Return the first position that differs and both tokens there, or None if the sequences are the same."""
    for position in range(max(len(plain), len(other))):
        ours = plain[position] if position < len(plain) else None
        theirs = other[position] if position < len(other) else None
        if ours != theirs:
            return position, ours, theirs
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=6)
    parser.add_argument("--draft-lengths", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--num-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    contestants = load_contestants(
        arguments.target, arguments.draft, arguments.draft_lengths, arguments.threads, ngram=True
    )
    differences: list[Difference] = []
    num_tokens = 0
    for number, prompt in enumerate(prompts, start=1):
        plain, *others = (one.answer(prompt.text, arguments.num_tokens) for one in contestants)
        num_tokens += len(plain.token_ids)
        for contestant, answer in zip(contestants[1:], others, strict=True):
            found = first_difference(plain.token_ids, answer.token_ids)
            if found is not None:
                differences.append(Difference(prompt.id, contestant.name, *found))
        print(f"{number}/{len(prompts)} {prompt.id}: {len(differences)} differences so far", flush=True)
    hand_in(
        arguments,
        QUESTION,
        {
            "target": arguments.target,
            "draft": arguments.draft,
            "threads": arguments.threads,
            "contestants": [one.name for one in contestants],
            "prompts": {family: len(group) for family, group in by_family(prompts).items()},
            "tokens_compared": num_tokens * (len(contestants) - 1),
            "num_differences": len(differences),
            "differences": [asdict(one) for one in differences],
        },
    )
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
