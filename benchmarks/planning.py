"""Does a plan's prediction come true, family by family, and is what it recommends the best there is?

    python -m benchmarks.planning --target T --drafts D1 D2 ngram --out R.json [--per-family 3 --num-run 8]

A plan is made, and then its choices, or the most promising of them, are run on the same prompts, all at the same time,
a round of one after a round of another. Greedy. ``predicted_by_measured`` is one figure for each choice and family, in
tokens per second: at the costs that the plan was made with, and at those of the moment, by what passes took in the
other choices' answers (``drift`` is the one by the other); ``speedup`` is by plain decoding's in the same seconds.
``recommended_by_best`` is the measured speed of what the plan takes for best in a family, by that of what turned out
best there. The memory of a process with the target and the first draft model, its context filled, is held against
what was predicted before anything was loaded.

On a busy machine ``--processor-time --threads 1`` still holds the arithmetic of predictions against rounds that are
run: several threads, which wait for each other, would count their waiting.

With three drafts, thirteen choices and plain decoding, a prompt of 64 tokens takes some 20 seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, pick, read_prompts
from outrider import SamplingParams
from outrider.drafters.registry import drafters
from outrider.models.open import open_model
from outrider.planner.document import Outcome, Plan
from outrider.planner.make import Surroundings, Wish, make_plan
from outrider.planner.memory import predict_memory

QUESTION = "Predicted against measured tokens per second and memory, and what was recommended against the best"
CONTEXT = 2048
ALL = "all"  # families
Rate = Callable[[Outcome, str], float]
_FILL = """
import sys
from outrider import LLM, SamplingParams
llm = LLM(sys.argv[1], [sys.argv[2]], ctx_size=int(sys.argv[3]), threads=int(sys.argv[4]))
pages = lambda: int(open("/proc/self/statm").read().split()[1])
params = SamplingParams(max_tokens=32, ignore_eos=True)
print(max(pages() for _ in llm.stream("word " * (int(sys.argv[3]) - 64), params, chat=False)))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafts", nargs="+", required=True)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=1)
    parser.add_argument("--num-tokens", type=int, default=64)
    parser.add_argument("--num-run", type=int, default=1000, help="of the choices that promise most; all by default")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--processor-time", action="store_true", help="count that, so that what other programs take is left out"
    )
    add_output_arguments(parser)
    arguments = parser.parse_args()
    planned_s, plan = made(arguments)
    run = ran(plan)
    results = {
        "target": arguments.target,
        "drafts": arguments.drafts,
        "threads": arguments.threads,
        "processor_time": arguments.processor_time,
        "temperature": arguments.temperature,
        "num_tokens": arguments.num_tokens,
        "prompts": {"measured": plan.prompts.measured, "families": dict(plan.prompts.families)},
        "planning_s": planned_s,
        "is_noisy": plan.is_noisy,
        "spread_of_passes": {one.model: one.spread for one in plan.passes},
        "drift": {one.model: one.drift for one in plan.passes},
        "differing_answers": {one.name: one.differing_answers for one in run},
        "predicted_by_measured": {basis: table(plan, predict) for basis, predict in PREDICTIONS.items()},
        "within_10_percent": {basis: within(plan, predict, 0.1) for basis, predict in PREDICTIONS.items()},
        "recommended": plan.best.name,
        "recommended_by_best": {
            group: by_best(plan, number, group) for group, number in {ALL: plan.recommended, **plan.by_family}.items()
        },
        "choices": {
            one.name: {
                "tokens_per_round": one.tokens_per_round,
                "speedup": [one.speed.speedup.low, one.speed.speedup.value, one.speed.speedup.high],
                "tokens_per_s": {
                    group: {
                        "predicted": predicted(one, group),
                        "at_the_costs_of_the_moment": repriced(one, group),
                        "measured": measured(one, group),
                    }
                    for group in (ALL, *one.families)
                },
            }
            for one in run
        },
        "memory": memory(arguments),
    }
    hand_in(arguments, QUESTION, results)


def made(arguments: argparse.Namespace) -> tuple[float, Plan]:
    """Return a plan whose choices have been run, and the seconds until they were."""
    started_at = time.perf_counter()
    marks: list[float] = []
    told: list[str] = []

    def tell(what: str, _share: float) -> None:
        if what == "measured":
            marks.append(time.perf_counter() - started_at)
        if what not in told[-1:]:
            told.append(what)
            print(f"{time.perf_counter() - started_at:.0f} s: {what}", flush=True)

    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    wish = Wish(
        target=arguments.target,
        drafts=tuple(arguments.drafts),
        prompts=prompts,
        params=SamplingParams(temperature=arguments.temperature, max_tokens=arguments.num_tokens),
        threads=arguments.threads,
        ctx_size=CONTEXT,
        num_run=arguments.num_run,
        budget_s=1000.0,
    )
    clock = time.process_time if arguments.processor_time else time.perf_counter
    surroundings = Surroundings(locate, os.environ, clock, datetime.now(timezone.utc), 1, tell)
    plan = make_plan(wish, surroundings)
    return marks[0], plan


def ran(plan: Plan) -> list[Outcome]:
    """Return the choices that have been run, plain decoding first."""
    return [one for one in plan.choices if one.measured_tokens_per_s]


def predicted(one: Outcome, group: str) -> float:
    """Return tokens per second of a family or of all, as the plan has them."""
    return (one.speed if group == ALL else one.families[group]).tokens_per_s.value


def repriced(one: Outcome, group: str) -> float:
    """Return the same at what passes took while the choices were run."""
    return (one.repriced_tokens_per_s or 0.0) if group == ALL else (one.repriced_families or {})[group]


def measured(one: Outcome, group: str) -> float:
    """Return the same as it was measured; 0 of a choice that was not run."""
    return (one.measured_tokens_per_s or 0.0) if group == ALL else (one.measured_families or {group: 0.0})[group]


def _by_plain(rate: Rate) -> Callable[[Plan, Outcome, str], float]:
    """Return the ratio of a choice's predicted and measured speeds, each by plain decoding's."""
    return lambda plan, one, group: _ratio(rate)(plan, one, group) / _ratio(rate)(plan, plan.choices[0], group)


def _ratio(rate: Rate) -> Callable[[Plan, Outcome, str], float]:
    return lambda _plan, one, group: rate(one, group) / measured(one, group)


# What is held against what was measured.
PREDICTIONS = {
    "tokens per second": _ratio(predicted),
    "tokens per second, at the costs of the moment": _ratio(repriced),
    "speedup": _by_plain(predicted),
    "speedup, at the costs of the moment": _by_plain(repriced),
}


def table(plan: Plan, predict: Callable[[Plan, Outcome, str], float]) -> dict[str, dict[str, float]]:
    """Return predicted by measured of each choice that was run, over all and by family."""
    return {one.name: {group: predict(plan, one, group) for group in (ALL, *one.families)} for one in ran(plan)}


def within(plan: Plan, predict: Callable[[Plan, Outcome, str], float], limit: float) -> dict[str, object]:
    """Return how many of the ratios by choice and family lie within a limit of 1, and which do not; over all alike."""
    cells = [(name, group, ratio) for name, groups in table(plan, predict).items() for group, ratio in groups.items()]
    of_all = [ratio for _, group, ratio in cells if group == ALL]
    found = [cell for cell in cells if cell[1] != ALL]
    beyond = [{"choice": name, "family": family, "ratio": x} for name, family, x in found if abs(x - 1) > limit]
    return {
        "over_all": {"of": len(of_all), "num": sum(abs(x - 1) <= limit for x in of_all)},
        "by_family": {"of": len(found), "num": len(found) - len(beyond), "beyond": beyond},
    }


def by_best(plan: Plan, number: int, group: str) -> float:
    """Return the measured speed of a choice by that of the best; of one that was not run 0."""
    return measured(plan.choices[number], group) / max(measured(one, group) for one in plan.choices)


def memory(arguments: argparse.Namespace) -> dict[str, float]:
    """Return predicted and measured bytes of a process with the target and the first draft model."""
    draft = next(name for name in arguments.drafts if name not in drafters())
    target_path, draft_path = locate(arguments.target), locate(draft)
    predicted = predict_memory(open_model(target_path), [open_model(draft_path)], ctx_size=CONTEXT).total
    command = [sys.executable, "-c", _FILL, str(target_path), str(draft_path), str(CONTEXT), str(arguments.threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    measured = os.sysconf("SC_PAGE_SIZE") * int(done.stdout)
    return {"predicted": predicted, "measured": measured, "ratio": predicted / measured}


if __name__ == "__main__":
    main()
