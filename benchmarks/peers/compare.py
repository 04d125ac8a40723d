"""How fast are we beside every other engine in the setting that suits it best, greedily and at temperature 1?

    python -m benchmarks.peers.compare --target T --draft D --out R.json [--per-family 1 --code 2 --max-tokens 32]

First each engine is tried in each of its settings, by short answers. Then those that were best, on code or on other
prompts, are loaded one after the other beside ours, which speculates as it does by default, and both answer every
prompt, one right after the other. The document is written at every step, and ``--resume`` goes on where it ends.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.contestants import CONTEXT, tell
from benchmarks.models import locate
from benchmarks.peers.roster import ROSTER, Complete, Entry, start
from benchmarks.peers.tuning import MOST_TOKENS, bests, rivals, tune, tuning_prompts
from benchmarks.provenance import add_output_arguments, hand_in, keep, provenance
from benchmarks.texts import PROMPTS, Prompt, choose, read_prompts
from outrider import LLM, SamplingParams
from outrider.engine.contestant import Outrider
from outrider.metrics.paired import Answer, Contestant, Turn, by_family, ratio_by_prompt, summary, take_turns

QUESTION = "Decoding speed of Outrider with a draft beside other engines in their settings, paired in one run"
OURS, CODE_FAMILY = "outrider", "humaneval"
COMPLETE, PROBLEM = "is_complete", "problem"
_OURS_S = 1.5  # about how long an answer of ours takes


@dataclass(frozen=True, slots=True)
class Peer:
    """Another engine, given our very prompt tokens."""

    name: str
    complete: Complete
    temperature: float
    llm: LLM

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """See :class:`outrider.metrics.paired.Contestant`."""
        return self.complete(self.llm.encode(prompt), num_tokens, self.temperature)


def main() -> None:
    names = [entry.name for entry in ROSTER]
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True, help="a GGUF file: catalog name, path or hf: reference")
    parser.add_argument("--draft", required=True, help="likewise")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=f"of {', '.join(names)}"
    )
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--families", nargs="+", help="by default all of the file")
    parser.add_argument("--per-family", type=int, default=1)
    parser.add_argument("--code", type=int, default=2, help="prompts of humaneval, if those are more")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    parser.add_argument("--resume", action="store_true", help="keep what --out holds, and go on from there")
    add_output_arguments(parser)
    arguments = parser.parse_args()
    if arguments.resume and (arguments.out is None or not arguments.out.exists()):
        parser.error("--resume needs an --out that is there")
    every = read_prompts(arguments.prompts)
    chosen = choose(every, arguments.families, arguments.per_family)
    if any(prompt.family == CODE_FAMILY for prompt in chosen):
        code = choose(every, [CODE_FAMILY], max(arguments.code, arguments.per_family))
        chosen = [*code, *(prompt for prompt in chosen if prompt.family != CODE_FAMILY)]
    entries = [entry for entry in ROSTER if entry.name in arguments.only]
    ours = LLM(arguments.target, arguments.draft, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)
    settings: dict[str, object] = {
        "target": arguments.target,
        "draft": arguments.draft,
        "threads": arguments.threads,
        "max_tokens": arguments.max_tokens,
        "prompts": [prompt.id for prompt in chosen],
    }
    tuned, peers = earlier(arguments.out, settings) if arguments.resume else ({}, {})

    def save() -> dict[str, object]:
        results = {**settings, "closest": closest(peers), "tuning": tuned, "peers": peers}
        keep(arguments, QUESTION, results)
        return results

    tell_time(entries, tuned, arguments, len(chosen))
    tune_all(rivals(entries), ours, chosen, arguments, tuned, save)
    working = {name: one for name, one in tuned.items() if PROBLEM not in one}
    best = bests(entries, working, arguments.temperatures)
    for entry in entries:
        temperatures = [temperature for temperature, names in best.items() if entry.name in names]
        if temperatures and not peers.get(entry.name, {}).get(COMPLETE):
            peers[entry.name] = {"provenance": asdict(provenance(arguments.date or datetime.now(timezone.utc)))}
            measure(entry, ours, chosen, temperatures, arguments, peers[entry.name], save)
    hand_in(arguments, QUESTION, save())


def tell_time(entries: Sequence[Entry], tuned: Mapping[str, object], arguments: argparse.Namespace, num: int) -> None:
    """Say about how long it will take: to try what was not tried yet, and to measure a setting of each engine."""
    times, tokens = len(arguments.temperatures), min(arguments.max_tokens, MOST_TOKENS)
    trying = sum(entry.seconds(3 * times, tokens) for entry in rivals(entries) if entry.name not in tuned)
    one_each = {entry.peer: entry for entry in entries}.values()
    measuring = sum(entry.seconds(num * times, arguments.max_tokens) + num * times * _OURS_S for entry in one_each)
    print(f"trying settings takes about {trying / 60:.0f} minutes, measuring {measuring / 60:.0f}", flush=True)


def tune_all(  # noqa: PLR0913 - what is tried, how, and where it goes
    entries: Sequence[Entry],
    ours: LLM,
    prompts: Sequence[Prompt],
    arguments: argparse.Namespace,
    tuned: dict[str, dict[str, Any]],
    save: Callable[[], object],
) -> None:
    """Try each setting that has not been tried, and note how fast it is, or why it does nothing."""
    for entry in entries:
        if entry.name in tuned and PROBLEM not in tuned[entry.name]:
            continue
        print(f"trying {entry.name}", flush=True)
        with ExitStack() as stack:
            try:
                _, complete = start(entry, arguments, stack)
                tuned[entry.name] = tune(
                    complete, ours, tuning_prompts(prompts), arguments.temperatures, arguments.max_tokens
                )
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                tuned[entry.name] = {PROBLEM: str(error)}
        print(f"{entry.name}: {tuned[entry.name]}", flush=True)
        save()


def earlier(path: Path, settings: Mapping[str, object]) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return what a document holds of other engines: as they were tried, and as they were measured.

    Raises:
        ValueError: It was measured with other settings.
    """
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    for name, value in settings.items():
        if results[name] != value:
            raise ValueError(
                f"{path} was measured with {name} {results[name]}, and this is {value}; leave out --resume"
            )
    return results["tuning"], results["peers"]


def measure(  # noqa: PLR0913 - what is measured, how, and where it goes
    entry: Entry,
    ours: LLM,
    prompts: Sequence[Prompt],
    temperatures: Sequence[float],
    arguments: argparse.Namespace,
    document: dict[str, Any],
    save: Callable[[], object],
) -> None:
    """Write into a document what one engine does beside ours, or why it does nothing; save it after each prompt."""
    turns: list[Turn] = []

    def note(turn: Turn) -> None:
        tell(turn)
        turns.append(turn)
        groups = {"all": turns, **by_family(turns)}
        document[f"temperature {temperature:g}"] = {group: table(entry.name, own) for group, own in groups.items()}
        save()

    with ExitStack() as stack:
        try:
            print(f"starting {entry.name}", flush=True)
            document["version"], complete = start(entry, arguments, stack)
            for temperature in temperatures:
                contestants: list[Contestant] = [
                    Outrider(OURS, ours, SamplingParams(temperature=temperature)),
                    Peer(entry.name, complete, temperature, ours),
                ]
                turns.clear()
                take_turns(contestants, prompts, repeats=1, num_tokens=arguments.max_tokens, tell=note)
            document[COMPLETE] = True
            save()
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"{entry.name}: {error}", flush=True)
            document[PROBLEM] = str(error)
            save()


def table(peer: str, turns: Sequence[Turn]) -> dict[str, object]:
    """Return both sides' figures over some turns, and how many times as fast as the peer we are."""
    rated = [turn for turn in turns if turn.is_rated]
    ratio = ratio_by_prompt(rated, OURS, peer) if rated else None
    return {"outrider_to_peer": ratio, **summary(turns, OURS)}


def closest(peers: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, object]]:
    """Return, by temperature and group of prompts, the setting that comes closest to us, and our ratio to it.

    ``median`` is over prompts, each with its own ratio; ``total`` is all tokens by all of their time.
    """
    found: dict[str, dict[str, dict[str, tuple[float, str]]]] = {}
    for name, measured in peers.items():
        for temperature in [key for key in measured if key.startswith("temperature")]:
            for group, figures in measured[temperature].items():
                if figures["outrider_to_peer"] is None:
                    continue
                least = found.setdefault(temperature, {}).setdefault(group, {})
                by_total = 1 / figures[name][f"total_ratio_to_{OURS}"]
                for way, ratio in (("median", figures["outrider_to_peer"]["median"]), ("total", by_total)):
                    least[way] = min((ratio, name), least.get(way, (ratio, name)))
    return {
        temperature: {
            group: {way: {"peer": name, "outrider_to_peer": ratio} for way, (ratio, name) in least.items()}
            for group, least in groups.items()
        }
        for temperature, groups in found.items()
    }


if __name__ == "__main__":
    main()
