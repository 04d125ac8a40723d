"""Does a plan's prediction come true, family by family, and is what it recommends the best there is?

    python -m benchmarks.planning --target T --drafts D1 D2 ngram --out R.json

A plan is made, and then every choice of it is run on the same prompts, all taking turns on each prompt. Greedy.
``predicted_by_measured`` is one figure for each choice and family; ``recommended_by_best`` the measured speed of what
the plan takes for best in a family, by that of what turned out best there. The memory of a process with the target and
the first draft model, its context filled, is held against what was predicted before anything was loaded.
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
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    planned_s, plan = made(arguments)
    results = {
        "target": arguments.target,
        "drafts": arguments.drafts,
        "threads": arguments.threads,
        "temperature": arguments.temperature,
        "num_tokens": arguments.num_tokens,
        "prompts": {"measured": plan.prompts.measured, "families": dict(plan.prompts.families)},
        "planning_s": planned_s,
        "is_noisy": plan.is_noisy,
        "spread_of_passes": {one.model: one.spread for one in plan.passes},
        "predicted_by_measured": {one.name: ratios(one) for one in plan.choices},
        "predicted_by_measured_of_all": {one.name: ratio_of_all(one) for one in plan.choices},
        "within_10_percent": within(plan, 0.1),
        "recommended": plan.best.name,
        "recommended_by_best": {
            "all": by_best(plan, plan.recommended, lambda one: one.measured_tokens_per_s or 0.0),
            **{family: family_by_best(plan, family, number) for family, number in plan.by_family.items()},
        },
        "choices": {
            one.name: {
                "predicted": one.speed.tokens_per_s.value,
                "speedup": [one.speed.speedup.low, one.speed.speedup.value, one.speed.speedup.high],
                "measured": one.measured_tokens_per_s,
                "tokens_per_round": one.tokens_per_round,
                "families": {
                    family: [own.tokens_per_s.value, _measured(one, family)] for family, own in one.families.items()
                },
            }
            for one in plan.choices
        },
        "memory": memory(arguments),
    }
    hand_in(arguments, QUESTION, results)


def made(arguments: argparse.Namespace) -> tuple[float, Plan]:
    """Return a plan of which every choice has been run, and the seconds until the first of them was."""
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
        num_run=1000,
        budget_s=1000.0,
    )
    surroundings = Surroundings(locate, os.environ, time.perf_counter, datetime.now(timezone.utc), 1, tell)
    plan = make_plan(wish, surroundings)
    return marks[0], plan


def ratios(one: Outcome) -> dict[str, float]:
    """Return predicted by measured speed of a choice, by family."""
    return {family: own.tokens_per_s.value / _measured(one, family) for family, own in one.families.items()}


def ratio_of_all(one: Outcome) -> float:
    """Return the same over all families."""
    return one.speed.tokens_per_s.value / (one.measured_tokens_per_s or float("nan"))


def within(plan: Plan, limit: float) -> dict[str, object]:
    """Return how many of the ratios lie within a limit of 1, and which do not."""
    found = [(one.name, family, ratio) for one in plan.choices for family, ratio in ratios(one).items()]
    beyond = [{"choice": name, "family": family, "ratio": x} for name, family, x in found if abs(x - 1) > limit]
    return {"of": len(found), "num": len(found) - len(beyond), "beyond": beyond}


def by_best(plan: Plan, number: int, measured: Callable[[Outcome], float]) -> float:
    """Return the measured speed of a choice by that of the best."""
    return measured(plan.choices[number]) / max(measured(one) for one in plan.choices)


def family_by_best(plan: Plan, family: str, number: int) -> float:
    """Return the same in a family."""
    return by_best(plan, number, lambda one: _measured(one, family))


def _measured(one: Outcome, family: str) -> float:
    return (one.measured_families or {})[family]


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
