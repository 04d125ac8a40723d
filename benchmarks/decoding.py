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
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contestants import CONTEXT, PLAIN, Answer, Contestant, Outrider, Peer, load_contestants
from benchmarks.models import locate
from benchmarks.peers.llama_cpp import Build, LlamaCpp, Settings, installed
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.spread import paired_ratio, spread
from benchmarks.texts import PROMPTS, Prompt, by_family, pick, read_prompts
from outrider.metrics import SourceCounts, SpeculationCounters, acceptance_rate, mean_acceptance_length

QUESTION = "Decoding speed of Outrider, plain and speculative, beside llama.cpp, paired in one run"
_SHORTEST = 8  # tokens to be timed in an answer; shorter ones say more about the clock


@dataclass(frozen=True, slots=True)
class Turn:
    """What everyone answered to one prompt, one right after the other, by name."""

    prompt: Prompt
    answers: dict[str, Answer]


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
    prompts = read_prompts(arguments.prompts)
    families = arguments.families or list(by_family(prompts))
    chosen = pick([prompt for prompt in prompts if prompt.family in families], arguments.per_family)
    builds = installed(arguments.peers)
    with ExitStack() as stack:
        ours = load_contestants(
            arguments.target, arguments.draft, arguments.draft_lengths, arguments.threads, ngram=arguments.ngram
        )
        peers = [peer for build in builds for peer in load_peers(stack, build, arguments, ours[0])]
        turns = measure([*ours, *peers], chosen, arguments.rounds, arguments.num_tokens)
    results = {
        "target": arguments.target,
        "draft": arguments.draft,
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "num_tokens": arguments.num_tokens,
        "versions": {build.name: build.version for build in builds},
        "prompts_rated": {family: len({turn.prompt.id for turn in own}) for family, own in grouped(turns).items()},
        "outrider_plain_to_llama_cpp": {build.name: plain_ratio(build.name, turns) for build in builds},
        "all": table(turns),
        "families": {family: table(own) for family, own in grouped(turns).items()},
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


def measure(contestants: Sequence[Contestant], prompts: list[Prompt], rounds: int, num_tokens: int) -> list[Turn]:
    """Let everyone answer every prompt in turn, and keep the turns in which all answers are long enough to rate."""
    for contestant in contestants:
        contestant.answer(prompts[0].text, _SHORTEST)  # warms up
    turns = []
    for number in range(1, rounds + 1):
        for prompt in prompts:
            answers = {one.name: one.answer(prompt.text, num_tokens) for one in contestants}
            rates = ", ".join(f"{name} {answer.tokens_per_s:.1f}" for name, answer in answers.items())
            print(f"round {number} {prompt.id}: {rates} tokens/s", flush=True)
            if min(answer.num_decoded for answer in answers.values()) >= _SHORTEST:
                turns.append(Turn(prompt, answers))
    return turns


def grouped(turns: list[Turn]) -> dict[str, list[Turn]]:
    """Group turns by the family of their prompts."""
    families: dict[str, list[Turn]] = {}
    for turn in turns:
        families.setdefault(turn.prompt.family, []).append(turn)
    return families


def table(turns: list[Turn]) -> dict[str, dict[str, object]]:
    """Return what is published of each contestant, over the given turns."""
    return {name: row([turn.answers[name] for turn in turns], turns) for name in turns[0].answers}


def row(answers: list[Answer], turns: list[Turn]) -> dict[str, object]:
    """Return one contestant's rates, its ratio to our plain decoding in the same turns, and its counters."""
    plain = [turn.answers[PLAIN] for turn in turns]
    rates, plain_rates = [one.tokens_per_s for one in answers], [one.tokens_per_s for one in plain]
    counters = add_up([answer.counters for answer in answers])
    return {
        "tokens_per_s": spread(rates),
        "total_tokens_per_s": total_rate(answers),
        "ratio_to_outrider_plain": paired_ratio(rates, plain_rates),
        "total_ratio_to_outrider_plain": total_rate(answers) / total_rate(plain),
        "prompt_tokens_per_s": spread([answer.num_prompt_tokens / answer.prompt_s for answer in answers]),
        "same_tokens_as_outrider_plain": sum(
            one.token_ids == other.token_ids for one, other in zip(answers, plain, strict=True)
        ),
        "counters": asdict(counters),
        "acceptance_rate": acceptance_rate(counters),
        "mean_acceptance_length": mean_acceptance_length(counters),
    }


def plain_ratio(peer: str, turns: list[Turn]) -> dict[str, object]:
    """Return how our plain decoding compares with that of a peer."""
    ours, theirs = ([turn.answers[name] for turn in turns] for name in (PLAIN, peer))
    return {
        "paired": paired_ratio([one.tokens_per_s for one in ours], [one.tokens_per_s for one in theirs]),
        "total": total_rate(ours) / total_rate(theirs),
    }


def total_rate(answers: list[Answer]) -> float:
    """Return all tokens over all of their time: what someone who runs the whole set gets."""
    return sum(answer.num_decoded for answer in answers) / sum(answer.decode_s for answer in answers)


def add_up(parts: list[SpeculationCounters]) -> SpeculationCounters:
    """Add counters of answers to one."""
    total = SpeculationCounters()
    for part in parts:
        total.num_drafts += part.num_drafts
        total.num_draft_tokens += part.num_draft_tokens
        total.num_accepted_tokens += part.num_accepted_tokens
        total.num_rejections += part.num_rejections
        mine, theirs = total.num_accepted_tokens_per_pos, part.num_accepted_tokens_per_pos
        mine.extend([0] * (len(theirs) - len(mine)))
        for position, count in enumerate(theirs):
            mine[position] += count
        for name, counts in part.sources.items():
            own = total.sources.setdefault(name, SourceCounts())
            own.num_draft_tokens += counts.num_draft_tokens
            own.num_accepted_tokens += counts.num_accepted_tokens
    return total


if __name__ == "__main__":
    main()
