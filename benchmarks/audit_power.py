"""What the default budget of ``outrider audit pair`` finds: engines that are wrong by little where it draws.

    python -m benchmarks.audit_power --faults all --rules token block --jobs 2 --out benchmarks/results/audit-power.json
    python -m benchmarks.audit_power --distances 0 --rules token block --runs 6000 --jobs 2 --out ...
    python -m benchmarks.audit_power --model smollm2-135m --runs 3

The engine is the real one with a verifier that is wrong in a share of its refusals, such that the law of the first
token is off by a given total variation, on average over the places: worked out from the laws, not from draws. At a
distance of 0 it is right, and what is found are false alarms.

On a toy pair of six tokens (audit_toy.py) everything that a round can do is enumerated, by running the engine's own
round once for each branch of its random decisions. Draws are then dealt from that law, much faster than the engine
makes them (audit_dealing.py), and the audit is stopped and judged as any audit is. On a real model the engine draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.audit_dealing import BulkCounter, Dealt, Rounds
from benchmarks.audit_toy import DRAFT_TOKENS, FAULTS, PARAMS, VOCAB_SIZE, Toy, ToyRule, moved
from benchmarks.provenance import add_output_arguments, hand_in
from outrider.audit.cells import DirectedOrder, PrefixLaws
from outrider.audit.certificate import Certificate, Claim
from outrider.audit.control import WrongStepper, wrong_variant
from outrider.audit.draws import Prefix, WatchedDrafter
from outrider.audit.evidence import Equality
from outrider.audit.memory import CheckedBackend, RememberedBackend
from outrider.audit.pair import GREEDY, SEEDED, Wish, encode, load_wished, remembering_drafter
from outrider.audit.sampled import BLOCK, Budget, Pair, Report, SamplingAudit, sampling_evidence
from outrider.audit.state import Progress
from outrider.audit.tally import Tally, joint_name
from outrider.audit.texts import PROMPTS
from outrider.audit.toy_engine import Letters
from outrider.drafters.compression import DraftOptions
from outrider.engine.loading import Model, resolve_quietly
from outrider.engine.step import Stepper
from outrider.types import Probs

_SAME = 24  # texts and rows that were compared, and are the same
_LEVELS = (1e-1, 1e-2, 1e-3, 1e-4)


@dataclass(frozen=True, slots=True)
class Run:
    """What an audit came to.

    Attributes:
        verdict: See :class:`~outrider.audit.certificate.Judgement`.
        draws: How many it took.
        level: The least chance of a false alarm at which it would have failed.
    """

    verdict: str
    draws: int
    level: float


@dataclass(frozen=True, slots=True)
class Blocks:
    """Draws at a place, as many at a time as are counted between two looks of the sequential test."""

    rounds: Rounds
    last: int
    dealt: Iterator[Dealt]


@dataclass(frozen=True, slots=True)
class Dealing:
    """Deals draws from what rounds do, in place of a :class:`~outrider.audit.draws.Drawing`."""

    rounds: Rounds
    share: float
    rng: np.random.Generator

    def draw(self, prefix: Prefix, numbers: range) -> Blocks:
        """Return draws, one for each number."""
        last = prefix.token_ids[-1]
        blocks = (np.array(numbers[start : start + BLOCK]) for start in range(0, len(numbers), BLOCK))
        dealt = (self.rounds.deal(last, block, self.share, self.rng) for block in blocks)
        return Blocks(self.rounds, last, dealt)


class DealtAudit(SamplingAudit):
    """An audit whose draws are dealt.

    Args:
        right: The engine.
        audited, control: Its rounds beside those of one that is always wrong: as the audited engine is in a share of
            its refusals, and as the negative control is.
        share: That share.
        budget: Of the audit.
    """

    def __init__(self, right: Toy, audited: Rounds, control: Rounds, share: float, budget: Budget) -> None:
        rng = np.random.default_rng([budget.seed, 1])
        self._toy = right
        self._dealings = (Dealing(audited, share, rng), Dealing(control, 1.0, rng))
        target = Model("toy", right.model, _Toyletters(), None, 4096)  # type: ignore[arg-type]
        super().__init__(Pair(target, right.watch, DRAFT_TOKENS, 0, right.method), PARAMS, budget, Claim())

    def _drawing(self, stepper: Stepper) -> Any:
        return self._dealings[isinstance(stepper, WrongStepper)]

    def _draws(self, prefix: Prefix, numbers: range, where: str, report: Report) -> Any:  # noqa: ARG002
        return self._right.draw(prefix, numbers)

    def _probe(self, prefix: Prefix) -> Probs:
        law: Probs = self._toy.drafted[prefix.token_ids[-1]]
        return law

    def _count(  # noqa: PLR0913 - as of the audit
        self, draws: Any, laws: PrefixLaws, order: DirectedOrder, number: int, num: int, before: Sequence[Tally]
    ) -> Tally:
        rng = np.random.default_rng([self._budget.seed, number])
        counter = BulkCounter(draws.rounds.place(draws.last, laws, order, num), draws.rounds, rng)
        for block in draws.dealt:
            counter.add(block)
            counter.tally.checkpoint()
            if self._is_convinced([*before, counter.tally]):
                break
        return counter.tally


class _Toyletters(Letters):
    num_tokens = VOCAB_SIZE


@dataclass(frozen=True, slots=True)
class WrongPair(Pair):
    """A pair whose engine is wrong in a share of its refusals.

    Attributes:
        wrong_share: That share.
        fault: What it does there.
    """

    wrong_share: float = 0.0
    fault: type[WrongStepper] = WrongStepper

    def stepper(self, backend: CheckedBackend | RememberedBackend | None = None) -> Stepper:
        """See :class:`~outrider.audit.sampled.Pair`."""
        stepper = Pair.stepper(self, backend)
        return stepper if backend is None else wrong_variant(stepper, self.wrong_share, self.fault)


def audited(audit: SamplingAudit, places: Sequence[Prefix], budget: Budget) -> Run:
    """Return what an audit comes to; its texts are taken to be the same."""
    progress = Progress([Equality(GREEDY, _SAME, 0), Equality(SEEDED, _SAME, 0)], num_rows=_SAME)
    audit.run(places, progress, lambda _text: None, lambda: None)
    audit.close()
    evidence, controls = sampling_evidence(progress, budget.num_tokens)
    claim = Claim(shown_by=joint_name(budget.num_tokens))
    verdict = Certificate("pair", "", "", {}, {}, {}, claim, evidence, controls).judge().verdict
    # Holm's first step: anything is rejected only if the least p-value is, at the level over their number.
    level = min(1.0, len(evidence) * min(one.finding().p_value for one in evidence))
    return Run(verdict, sum(tally.num for tally in progress.tallies), level)


def on_toy(  # noqa: PLR0913 - what is wrong, by how much, and how often it is audited
    rule: ToyRule, fault: str, distance: float, runs: int, seed: int, jobs: int = 1
) -> dict[str, object]:
    """Audit a wrong engine over and over; return how often it was found out."""
    share = distance / moved(_toy(None, rule), _toy(fault, rule))
    once = partial(_once, rule, fault, share)
    numbers = range(seed, seed + runs)
    if jobs == 1:
        return _summary(rule, fault, distance, share, [once(number) for number in numbers])
    with ProcessPoolExecutor(jobs) as pool:
        return _summary(rule, fault, distance, share, list(pool.map(once, numbers, chunksize=20)))


def _once(rule: ToyRule, fault: str, share: float, seed: int) -> Run:
    budget = Budget(num_prefixes=VOCAB_SIZE, seed=seed)
    audit = DealtAudit(_toy(None, rule), _rounds(fault, rule), _rounds(next(iter(FAULTS)), rule), share, budget)
    return audited(audit, [Prefix(f"after {last}", (0, last)) for last in range(VOCAB_SIZE)], budget)


@cache  # what rounds do is enumerated once in each process
def _toy(fault: str | None, rule: ToyRule) -> Toy:
    return Toy(None if fault is None else FAULTS[fault], rule)


@cache
def _rounds(fault: str, rule: ToyRule) -> Rounds:
    return Rounds(_toy(None, rule), _toy(fault, rule), Budget().num_tokens, Budget().full_every)


def on_model(model: str, distance: float, runs: int, seed: int) -> dict[str, object]:
    """Do the same with draws that the engine makes, of a model with itself in 4 bits as the draft."""
    wish = Wish(
        model,
        [model, "none"],
        PARAMS,
        rule="token",
        draft_options=DraftOptions(vocab=8192, window=128),
        threads=(1,),
    )
    target, parts = load_wished(wish, 1, resolve_quietly)
    drafter = WatchedDrafter(remembering_drafter(wish, target, parts, resolve_quietly))
    pair = Pair(target, drafter, wish.lengths[0], 0, "token")
    prompts = [(name, encode(target, text, chat=True)) for name, text in PROMPTS]
    looking = SamplingAudit(pair, PARAMS, Budget(seed=seed), Claim())
    places = looking.prefixes(prompts)
    share = distance / float(np.mean([looking.telling(place) for place in places]))
    looking.close()
    found = []
    for number in range(runs):
        budget = Budget(seed=seed + number)
        wrong = WrongPair(target, drafter, wish.lengths[0], 0, "token", share)
        found.append(audited(SamplingAudit(wrong, PARAMS, budget, Claim()), places, budget))
    return _summary("token", next(iter(FAULTS)), distance, share, found) | {"model": model}


def _summary(rule: str, fault: str, distance: float, share: float, runs: Sequence[Run]) -> dict[str, object]:
    found = sum(run.verdict == "fail" for run in runs)
    return {
        "rule": rule,
        "fault": fault if distance else None,
        "total_variation": distance,
        "share_of_refusals": share,
        "runs": len(runs),
        "found": found,
        "interval_95": _interval(found, len(runs)),
        "void": sum(run.verdict == "void" for run in runs),
        "mean_draws": float(np.mean([run.draws for run in runs])),
        # Of a right engine these are false alarms: at most as often as the level says, if p-values are not too small.
        "found_at_level": {str(level): sum(run.level <= level for run in runs) for level in _LEVELS},
    }


def _interval(found: int, runs: int) -> list[float]:
    """Return the interval of Clopper and Pearson (1934)."""
    interval = binomtest(found, runs).proportion_ci(0.95, method="exact")
    return [interval.low, interval.high]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=400, help="of each case; 368 of 368 found are 99 %% at least")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distances", type=float, nargs="+", default=[0.02], help="total variations")
    parser.add_argument("--faults", nargs="+", choices=[*FAULTS, "all"], default=[next(iter(FAULTS))])
    parser.add_argument("--rules", nargs="+", choices=["token", "block"], default=["token"])
    parser.add_argument("--jobs", type=int, default=1, help="audits of the toy at a time")
    parser.add_argument("--model", help="draw with the engine, from this model instead of a toy")
    add_output_arguments(parser)
    arguments = parser.parse_args()
    runs, seed = arguments.runs, arguments.seed
    if arguments.model is not None:
        cases = [on_model(arguments.model, distance, runs, seed) for distance in arguments.distances]
    else:
        faults = list(FAULTS) if "all" in arguments.faults else arguments.faults
        cases = [
            on_toy(rule, fault, distance, runs, seed, arguments.jobs)
            for rule in arguments.rules
            for fault in faults
            for distance in arguments.distances
        ]
    hand_in(arguments, (__doc__ or "").split("\n", maxsplit=1)[0], {"cases": cases})


if __name__ == "__main__":
    main()
