"""How fast do we decode, plain and speculating, beside llama.cpp, on the same file and the same prompts?

    python -m benchmarks.decoding --target T --out R.json
    python -m benchmarks.decoding --target T --draft D --draft-lengths 4 6 8 --families humaneval --per-family 41 ...

Greedy, in the model's chat template, up to the end of the answer. All take turns on every prompt, so that each is
measured in the same state of the machine as the others; ratios are taken within a turn. Rates count the tokens after an
answer's first, over the time they took; for llama.cpp by its own clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.contestants import CONTEXT, PLAIN, Peer, load_contestants, tell
from benchmarks.models import locate
from benchmarks.peers.llama_cpp import Build, LlamaCpp, Settings, installed
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, choose, read_prompts
from outrider.engine.contestant import Outrider
from outrider.metrics.paired import Turn, by_family, ratio_by_prompt, summary, take_turns, total_rate

QUESTION = "Decoding speed of Outrider, plain and speculative, beside llama.cpp, paired in one run"


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft")
    parser.add_argument("--draft-lengths", type=int, nargs="+", default=[4, 6, 8])
    parser.add_argument("--ngram", action="store_true", help="n-gram drafts take part, too")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--families", nargs="+", help="by default all of the file")
    parser.add_argument("--per-family", type=int, default=2)
    parser.add_argument("--num-tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    add_output_arguments(parser)
    arguments = parser.parse_args()
    chosen = choose(read_prompts(arguments.prompts), arguments.families, arguments.per_family)
    builds = installed(arguments.peers)
    with ExitStack() as stack:
        ours = load_contestants(
            arguments.target, arguments.draft, arguments.draft_lengths, arguments.threads, ngram=arguments.ngram
        )
        peers = [peer for build in builds for peer in load_peers(stack, build, arguments, ours[0])]
        turns = take_turns(
            [*ours, *peers], chosen, repeats=arguments.rounds, num_tokens=arguments.num_tokens, tell=tell
        )
    results = {
        "target": arguments.target,
        "draft": arguments.draft,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "num_tokens": arguments.num_tokens,
        "versions": {build.name: build.version for build in builds},
        "outrider_plain_to_llama_cpp": {build.name: plain_ratio(build.name, turns) for build in builds},
        "all": summary(turns, PLAIN),
        "families": {family: summary(own, PLAIN) for family, own in by_family(turns).items()},
    }
    hand_in(arguments, QUESTION, results)


def load_peers(stack: ExitStack, build: Build, arguments: argparse.Namespace, ours: Outrider) -> list[Peer]:
    """Start a llama.cpp without the draft and, if there is one, another with it; they idle until asked."""
    path = str(locate(arguments.target))
    settings = {build.name: Settings(path, arguments.threads, CONTEXT)}
    if arguments.draft is not None:
        draft = str(locate(arguments.draft))
        settings[f"{build.name} draft"] = Settings(path, arguments.threads, CONTEXT, draft=draft)
    return [Peer(name, stack.enter_context(LlamaCpp(build, one)), ours.llm) for name, one in settings.items()]


def plain_ratio(peer: str, turns: Sequence[Turn]) -> dict[str, object]:
    """Return how our plain decoding compares with that of a peer."""
    rated = [turn for turn in turns if turn.is_rated]
    ours, theirs = ([turn.answers[name] for turn in rated] for name in (PLAIN, peer))
    return {"paired": ratio_by_prompt(rated, PLAIN, peer), "total": total_rate(ours) / total_rate(theirs)}


if __name__ == "__main__":
    main()
