"""How much faster is a whole file answered in which a function is renamed?

    python -m benchmarks.edits --target T --out R.json

Greedy, up to the end of the answer, plainly, with the file looked up in the prompt, and with the file given as the
predicted output. All take turns on each of the ten cases of ``edit_cases``; ratios are taken within a case.
"""

from __future__ import annotations

import argparse

from benchmarks.contestants import CONTEXT, PLAIN, tell
from benchmarks.edit_cases import edit_cases
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import Prompt
from outrider import LLM
from outrider.engine.contestant import Outrider
from outrider.engine.loading import load_model
from outrider.metrics.paired import summary, take_turns

QUESTION = "Speed of answering a 200-line file with a function renamed, against plain decoding, paired in one run"


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--cases", type=int, default=10)
    parser.add_argument("--num-tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    cases = edit_cases()[: arguments.cases]
    model = load_model(arguments.target, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)
    sources = {case.prompt: case.source for case in cases}
    lookup = LLM(model, "ngram")
    contestants = [
        Outrider(PLAIN, LLM(model)),
        Outrider("ngram", lookup),
        Outrider("prediction", lookup, predictions=sources),
    ]
    prompts = [Prompt(case.id, "edit", case.prompt) for case in cases]
    turns = take_turns(contestants, prompts, repeats=arguments.rounds, num_tokens=arguments.num_tokens, tell=tell)
    results = {
        "target": arguments.target,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "num_tokens": arguments.num_tokens,
        "tokens": {turn.prompt.id: len(turn.answers[PLAIN].token_ids) for turn in turns},
        "all": summary(turns, PLAIN),
    }
    hand_in(arguments, QUESTION, results)


if __name__ == "__main__":
    main()
