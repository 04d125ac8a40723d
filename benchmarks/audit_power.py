"""What the default budget of ``outrider audit pair`` finds: engines that are wrong by little where it draws.

    python -m benchmarks.audit_power --runs 300 --out benchmarks/results/audit-power.json
    python -m benchmarks.audit_power --model smollm2-135m --runs 3

The engine is the real one with a verifier that is wrong in a share of its refusals, such that the law of the first
token is off by a given total variation, on average over the places: worked out from the laws, not from draws.

On a toy pair of six tokens everything that a round can do is enumerated, by running the engine's own round once for
each branch of its random decisions. Draws are then dealt from that law, much faster than the engine makes them, and are
counted, and the audit stopped and judged, as any audit is. On a real model the engine draws.
"""

from __future__ import annotations

import argparse
from bisect import bisect
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any, Literal

import numpy as np
from scipy.stats import binomtest

from benchmarks.provenance import add_output_arguments, hand_in
from outrider.audit.cells import draws_of
from outrider.audit.certificate import Certificate, Claim
from outrider.audit.control import WrongStepper, wrong_variant
from outrider.audit.draws import Draw, Drawing, Prefix, Round, WatchedDrafter, params_of_draws, say
from outrider.audit.evidence import Equality
from outrider.audit.memory import CheckedBackend, RememberedBackend
from outrider.audit.pair import GREEDY, SEEDED, Wish, encode, load_wished, remembering_drafter
from outrider.audit.sampled import Budget, Pair, SamplingAudit, sampling_evidence
from outrider.audit.state import Progress
from outrider.audit.tally import joint_name
from outrider.audit.texts import PROMPTS
from outrider.audit.toy_engine import Letters, SameCoins
from outrider.backends.toy import TableLM, ToyBackend
from outrider.drafters.compression import DraftOptions
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.drafting import NO_DRAFT
from outrider.engine.loading import Model, resolve_quietly
from outrider.engine.sequence import Request
from outrider.engine.sequence import Sequence as Answer
from outrider.engine.step import Stepper
from outrider.sampling import SamplingParams, TargetLaw, Vocabulary
from outrider.types import Coins, Proposal
from outrider.verification.exact import outcomes

VOCAB_SIZE, DRAFT_TOKENS = 6, 2
PARAMS = SamplingParams(temperature=1.0)
_SAME = 24  # texts and rows that were compared, and are the same
Outcome = tuple[Proposal, tuple[int, ...]]  # what was drafted, and what was emitted


class AcceptsRefused(WrongStepper):
    """Says the token that it refused."""

    def _instead(self, draft: Proposal, law: TargetLaw, row: int, coins: Coins) -> int:  # noqa: ARG002
        return draft.token_ids[row]


class TakesRowBehind(WrongStepper):
    """Draws what replaces a refused token from the law after that token."""

    def _instead(self, draft: Proposal, law: TargetLaw, row: int, coins: Coins) -> int:  # noqa: ARG002
        return coins.draw(law.probs[row + 1])


FAULTS: dict[str, type[WrongStepper]] = {
    "draws from the whole law of the target": WrongStepper,
    "says the token that it refused": AcceptsRefused,
    "draws from the row behind": TakesRowBehind,
}


class Toy:
    """Two models in two minds that look at the last token only, and the law of the rounds that start after each token.

    Args:
        fault: What the engine does wrong at every refusal; None for the engine as it is.
        rule: That verifies.
        seed: Of the models.
    """

    def __init__(self, fault: type[WrongStepper] | None, rule: Literal["token", "block"], seed: int = 0) -> None:
        self.method = rule
        rng = np.random.default_rng(seed)
        target = rng.dirichlet(np.full(VOCAB_SIZE, 0.7), VOCAB_SIZE)
        drafted = 0.5 * target + 0.5 * rng.dirichlet(np.full(VOCAB_SIZE, 0.7), VOCAB_SIZE)
        tables = [_table(laws) for laws in (target, drafted)]
        self.target, self.drafted = (np.array(one.table) / np.sum(one.table, axis=1, keepdims=True) for one in tables)
        self.model, draft = map(ToyBackend, tables)
        self.watch = WatchedDrafter(DraftModelDrafter(draft, vocab_size=VOCAB_SIZE, name="toy"))
        self.vocabulary = Vocabulary(Letters(), VOCAB_SIZE)
        right = Stepper(
            target=self.model,
            vocab_size=VOCAB_SIZE,
            eos_ids=frozenset(),
            detokenizer=Letters(),
            drafter=self.watch,
            num_speculative_tokens=DRAFT_TOKENS,
            max_tree_tokens=DRAFT_TOKENS,
            rule=rule,
        )
        self._stepper = right if fault is None else wrong_variant(right, 1.0, _with_its_coins(fault))
        self._laws: dict[tuple[int, int], tuple[list[Outcome], list[float]]] = {}

    def law(self, last: int, room: int) -> tuple[list[Outcome], list[float]]:
        """Return what a round may do after a token, and the sums of the chances up to each."""
        if (last, room) not in self._laws:
            drafts: dict[tuple[int, ...], Proposal] = {}
            law = outcomes(partial(self._round, last, room, drafts))
            found = [(drafts[drafted], emitted) for drafted, emitted in law]
            self._laws[last, room] = (found, list(accumulate(map(float, law.values()))))
        return self._laws[last, room]

    def first_token(self, last: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the law of the first token after a token."""
        found, sums = self.law(last, DRAFT_TOKENS)
        law = np.zeros(VOCAB_SIZE)
        for (_, emitted), share in zip(found, np.diff([0.0, *sums]), strict=True):
            law[emitted[0]] += share
        return law

    def _round(
        self, last: int, room: int, drafts: dict[tuple[int, ...], Proposal], coins: Coins
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        compiled = params_of_draws(PARAMS, room + 1, self.vocabulary)
        answer = self._stepper.open(Request(object(), (0,), compiled, 0))
        answer.coins = SameCoins(coins)  # type: ignore[assignment]
        say(answer, last, frozenset())
        self._stepper.step([answer])
        self._stepper.close(answer)
        if answer.error is not None:
            raise answer.error
        written = self.watch.drafts.pop(answer.request.request_id, [(0, NO_DRAFT)])
        draft = written[-1][1]
        drafts[draft.token_ids] = draft
        return draft.token_ids, tuple(answer.token_ids[2:])


def _table(laws: np.ndarray[Any, np.dtype[np.float64]]) -> TableLM:
    rows = tuple(tuple(int(1000 * prob) + 1 for prob in law) for law in laws)
    return TableLM(rows, rows[0])


def _with_its_coins(fault: type[WrongStepper]) -> type[WrongStepper]:
    """Return the fault with all its random decisions taken from the answer's coins, for enumeration."""

    class Enumerated(fault):  # type: ignore[valid-type, misc]
        def _other_coins(self, sequence: Answer) -> Coins:
            coins: Coins = sequence.coins  # type: ignore[assignment]
            return coins

    return Enumerated


@dataclass(slots=True)
class Dealing:
    """Deals draws from the laws of rounds: of the engine, or in a share of rounds of one that is wrong at refusals.

    A round has one refusal at most, so that is the law of an engine that is wrong in that share of its refusals.
    """

    right: Toy
    wrong: Toy
    share: float
    budget: Budget
    uniform: Iterator[float]

    def draw(self, prefix: Prefix, numbers: Sequence[int]) -> Iterator[Draw]:
        """See :class:`~outrider.audit.draws.Drawing`."""
        num = self.budget.num_tokens
        for number in numbers:
            is_full = number % self.budget.full_every == 0
            tokens: list[int] = []
            rounds: list[Round] = []
            while len(tokens) < num:
                room = DRAFT_TOKENS if is_full else min(DRAFT_TOKENS, num - len(tokens) - 1)
                toy = self.wrong if next(self.uniform) < self.share else self.right
                found, sums = toy.law(tokens[-1] if tokens else prefix.token_ids[-1], room)
                draft, emitted = found[min(bisect(sums, next(self.uniform)), len(found) - 1)]
                rounds.append(Round(len(tokens), draft, len(emitted) - 1))
                tokens += emitted
            yield Draw(tuple(tokens), tuple(rounds), self.right.method)


class DealtAudit(SamplingAudit):
    """An audit whose draws are dealt.

    Args:
        right, wrong: The engine, and one that is always wrong.
        control: One that the negative control is.
        share: In which share of its refusals the audited engine is wrong.
        budget: Of the audit.
    """

    def __init__(self, right: Toy, wrong: Toy, control: Toy, share: float, budget: Budget) -> None:
        self._uniform_draws = draws_of(np.random.default_rng([budget.seed, 1]))
        self._audited = (right, wrong, share)
        self._control = (right, control, 1.0)
        self._toy_budget = budget
        target = Model("toy", right.model, _Toyletters(), None, 4096)  # type: ignore[arg-type]
        super().__init__(Pair(target, right.watch, DRAFT_TOKENS, 0, right.method), PARAMS, budget, Claim())

    def _drawing(self, stepper: Stepper) -> Drawing:
        chosen = self._control if isinstance(stepper, WrongStepper) else self._audited
        dealing: Any = Dealing(*chosen, self._toy_budget, self._uniform_draws)
        return dealing  # type: ignore[no-any-return]


class _Toyletters(Letters):
    num_tokens = VOCAB_SIZE


@dataclass(frozen=True, slots=True)
class WrongPair(Pair):
    """A pair whose engine is wrong in a share of its refusals."""

    wrong_share: float = 0.0

    def stepper(self, backend: CheckedBackend | RememberedBackend | None = None) -> Stepper:
        """See :class:`~outrider.audit.sampled.Pair`."""
        stepper = Pair.stepper(self, backend)
        return stepper if backend is None else wrong_variant(stepper, self.wrong_share)


def audited(audit: SamplingAudit, places: Sequence[Prefix], budget: Budget) -> tuple[str, int]:
    """Return an audit's verdict, and how many draws it took; its texts are taken to be the same."""
    progress = Progress([Equality(GREEDY, _SAME, 0), Equality(SEEDED, _SAME, 0)], num_rows=_SAME)
    audit.run(places, progress, lambda _text: None, lambda: None)
    evidence, controls = sampling_evidence(progress, budget.num_tokens)
    claim = Claim(shown_by=joint_name(budget.num_tokens))
    certificate = Certificate("pair", "", "", {}, {}, {}, claim, evidence, controls)
    return certificate.judge().verdict, sum(tally.num for tally in progress.tallies)


def moved(right: Toy, wrong: Toy) -> float:
    """Return the total variation of the first token, on average over the places, if the engine is always wrong."""
    distances = [abs(wrong.first_token(last) - right.first_token(last)).sum() / 2 for last in range(VOCAB_SIZE)]
    return float(np.mean(distances))


def on_toy(  # noqa: PLR0913 - what is wrong, by how much, and how often it is audited
    rule: Literal["token", "block"], name: str, distance: float, runs: int, seed: int, jobs: int = 1
) -> dict[str, object]:
    """Audit a wrong engine over and over; return how often it was found out."""
    share = distance / moved(_toy(None, rule), _toy(name, rule))
    once = partial(_once, rule, name, share)
    numbers = range(seed, seed + runs)
    if jobs == 1:
        return _summary(rule, name, distance, share, [once(number) for number in numbers])
    with ProcessPoolExecutor(jobs) as pool:
        return _summary(rule, name, distance, share, list(pool.map(once, numbers)))


def _once(rule: Literal["token", "block"], name: str, share: float, seed: int) -> tuple[str, int]:
    budget = Budget(num_prefixes=VOCAB_SIZE, seed=seed)
    audit = DealtAudit(_toy(None, rule), _toy(name, rule), _toy(next(iter(FAULTS)), rule), share, budget)
    return audited(audit, [Prefix(f"after {last}", (0, last)) for last in range(VOCAB_SIZE)], budget)


@cache  # what rounds do is enumerated once in each process
def _toy(name: str | None, rule: Literal["token", "block"]) -> Toy:
    return Toy(None if name is None else FAULTS[name], rule)


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
    verdicts = []
    for number in range(runs):
        budget = Budget(seed=seed + number)
        wrong = WrongPair(target, drafter, wish.lengths[0], 0, "token", share)
        audit = SamplingAudit(wrong, PARAMS, budget, Claim())
        verdicts.append(audited(audit, places, budget))
        audit.close()
    return _summary("token", next(iter(FAULTS)), distance, share, verdicts) | {"model": model}


def _summary(
    rule: str, name: str, distance: float, share: float, verdicts: Sequence[tuple[str, int]]
) -> dict[str, object]:
    found = sum(verdict == "fail" for verdict, _ in verdicts)
    interval = binomtest(found, len(verdicts)).proportion_ci(0.95, method="exact")
    return {
        "rule": rule,
        "fault": name,
        "total_variation": distance,
        "share_of_refusals": share,
        "runs": len(verdicts),
        "found": found,
        "interval_95": [interval.low, interval.high],
        "void": sum(verdict == "void" for verdict, _ in verdicts),
        "mean_draws": float(np.mean([num for _, num in verdicts])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=300, help="of each case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distances", type=float, nargs="+", default=[0.02, 0.01, 0.0], help="total variations")
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
