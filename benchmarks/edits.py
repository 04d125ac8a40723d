"""How much faster is a whole file answered in which a function is renamed?

    python -m benchmarks.edits --target T --out R.json

Greedy, up to the end of the answer, plainly, with the file looked up in the prompt, and with the file given as the
predicted output. All take turns on each of the ten cases of ``edit_cases``; ratios are taken within a case.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from benchmarks.contestants import PLAIN, Answer, Contestant, Outrider
from benchmarks.decoding import Turn, measure, table
from benchmarks.edit_cases import edit_cases
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import Prompt
from outrider import LLM, SamplingParams
from outrider.engine.loading import load_model

QUESTION = "Speed of answering a 200-line file with a function renamed, against plain decoding, paired in one run"
_CONTEXT = 4096


@dataclass(frozen=True, slots=True)
class Predicted:
    """Our engine, given the file as it was as the predicted output."""

    name: str
    llm: LLM
    sources: dict[str, str]  # by prompt

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """See :class:`benchmarks.contestants.Contestant`."""
        params = SamplingParams(max_tokens=num_tokens)
        [output] = self.llm.generate(prompt, params, prediction=self.sources[prompt])
        return Answer(
            output.token_ids,
            output.usage.prompt_tokens,
            output.timing.prefill_s,
            output.timing.decode_s,
            output.speculation.counters,
        )


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
    model = load_model(arguments.target, threads=arguments.threads, ctx_size=_CONTEXT, resolver=locate)
    sources = {case.prompt: case.source for case in cases}
    lookup = LLM(model, "ngram")
    contestants: list[Contestant] = [
        Outrider(PLAIN, LLM(model)),
        Outrider("ngram", lookup),
        Predicted("prediction", lookup, sources),
    ]
    prompts = [Prompt(case.id, "edit", case.prompt) for case in cases]
    turns: list[Turn] = measure(contestants, prompts, arguments.rounds, arguments.num_tokens)
    results = {
        "target": arguments.target,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "num_tokens": arguments.num_tokens,
        "tokens": {turn.prompt.id: len(turn.answers[PLAIN].token_ids) for turn in turns},
        "all": table(turns),
    }
    hand_in(arguments, QUESTION, results)


if __name__ == "__main__":
    main()
