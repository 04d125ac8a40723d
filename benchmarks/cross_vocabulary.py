"""What does a draft model with another tokenizer gain over plain decoding?

    python -m benchmarks.cross_vocabulary --target qwen2.5-coder-1.5b --draft smollm2-135m --out R.json

Plain decoding, string drafts and token-by-token drafts of at most ``--draft-lengths`` tokens take turns on every
prompt, as in ``benchmarks.decoding``. Greedy, in the model's chat template. Exits with status 1 if an answer is not the
plain one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.contestants import CONTEXT, PLAIN, tell
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, choose, read_prompts
from outrider import LLM
from outrider.drafters.other_vocabulary import OtherVocabularyDrafter
from outrider.engine.contestant import Outrider
from outrider.engine.loading import load_model
from outrider.metrics.paired import by_family, summary, take_turns
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.models.vocabularies import compare_vocabularies

QUESTION = "Decoding speed with a draft of another vocabulary, paired with plain decoding in one run"


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--draft-lengths", type=int, nargs="+", default=[12])
    parser.add_argument("--min-confidence", type=float, default=0.5)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--families", nargs="+", help="by default all of the file")
    parser.add_argument("--per-family", type=int, default=2)
    parser.add_argument("--num-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    chosen = choose(read_prompts(arguments.prompts), arguments.families, arguments.per_family)
    target, draft = (
        load_model(name, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)
        for name in (arguments.target, arguments.draft)
    )
    vocabulary = JointVocabulary(target.tokenizer, target.vocab_size, draft.tokenizer, draft.vocab_size)
    contestants = [Outrider(PLAIN, LLM(target))]
    for way, strings in (("strings", True), ("token by token", False)):
        drafter = OtherVocabularyDrafter(
            draft.backend,
            vocabulary,
            name=draft.name,
            stop_ids=target.tokenizer.eos_ids,
            min_confidence=arguments.min_confidence,
            strings=strings,
        )
        contestants += [
            Outrider(f"{way} {k}", LLM(target, drafter, num_speculative_tokens=k)) for k in arguments.draft_lengths
        ]
    turns = take_turns(contestants, chosen, repeats=arguments.rounds, num_tokens=arguments.num_tokens, tell=tell)
    comparison = compare_vocabularies(target.tokenizer, draft.tokenizer)
    results = {
        "target": arguments.target,
        "draft": arguments.draft,
        "min_confidence": arguments.min_confidence,
        "threads": arguments.threads,
        "num_tokens": arguments.num_tokens,
        "shared_tokens": len(vocabulary.shared_ids),
        "shared_in_sample": comparison.shared_in_sample,
        "all": summary(turns, PLAIN),
        "families": {family: summary(own, PLAIN) for family, own in by_family(turns).items()},
    }
    hand_in(arguments, QUESTION, results)
    plain = [turn.answers[PLAIN].token_ids for turn in turns]
    differ = any(
        answer.token_ids != ids for turn, ids in zip(turns, plain, strict=True) for answer in turn.answers.values()
    )
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
