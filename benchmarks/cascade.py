"""Is a model joined by lookups never slower than the better of the two, whatever the prompt?

    python -m benchmarks.cascade --target T --draft D --out R.json

Greedy, plainly, with the draft model alone, with lookups alone, and with both, which take turns on every prompt.
``to_best_single`` compares the total rate of both together with that of the better one of the family.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.contestants import CONTEXT, PLAIN, tell
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, pick, read_prompts
from outrider import LLM
from outrider.engine.contestant import Outrider
from outrider.engine.loading import load_model
from outrider.metrics.paired import Turn, by_family, summary, take_turns, total_rate

QUESTION = "Speed with a draft model, with lookups and with both, by family, paired in one run"
MODEL, LOOKUP, BOTH = "draft model", "ngram", "cascade"


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=3)
    parser.add_argument("--num-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    model = load_model(arguments.target, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)
    drafts = {PLAIN: None, MODEL: f"{arguments.draft},none", LOOKUP: LOOKUP, BOTH: arguments.draft}
    contestants = [
        Outrider(name, LLM(model, draft, threads=arguments.threads, resolver=locate)) for name, draft in drafts.items()
    ]
    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    turns = take_turns(contestants, prompts, repeats=arguments.rounds, num_tokens=arguments.num_tokens, tell=tell)
    families = by_family(turns)
    results = {
        "target": arguments.target,
        "draft": arguments.draft,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "num_tokens": arguments.num_tokens,
        "to_best_single": {family: to_best_single(own) for family, own in {"all": turns, **families}.items()},
        "all": summary(turns, PLAIN),
        "families": {family: summary(own, PLAIN) for family, own in families.items()},
    }
    hand_in(arguments, QUESTION, results)


def to_best_single(turns: list[Turn]) -> float:
    """Return the rate of both together, by that of the better one."""
    rates = {
        name: total_rate([turn.answers[name] for turn in turns if turn.is_rated]) for name in (MODEL, LOOKUP, BOTH)
    }
    return rates[BOTH] / max(rates[MODEL], rates[LOOKUP])


if __name__ == "__main__":
    main()
