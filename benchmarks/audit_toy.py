"""A toy engine whose rounds are enumerated, right or wrong at refusals: what audit_power deals draws from."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.audit.control import WrongStepper, wrong_variant
from outrider.audit.draws import WatchedDrafter, params_of_draws, say
from outrider.audit.toy_engine import Letters, SameCoins
from outrider.backends.toy import TableLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.drafting import NO_DRAFT
from outrider.engine.sequence import Request
from outrider.engine.sequence import Sequence as Answer
from outrider.engine.step import Stepper
from outrider.sampling import SamplingParams, TargetLaw, Vocabulary
from outrider.types import Coins, Proposal
from outrider.verification.exact import outcomes

VOCAB_SIZE, DRAFT_TOKENS = 6, 2
PARAMS = SamplingParams(temperature=1.0)
ToyRule: TypeAlias = Literal["token", "block"]
Outcome: TypeAlias = tuple[Proposal, tuple[int, ...]]  # what was drafted, and what was emitted


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

    def __init__(self, fault: type[WrongStepper] | None, rule: ToyRule, seed: int = 0) -> None:
        self.method: ToyRule = rule
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

    def first_token(self, last: int) -> NDArray[np.float64]:
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
        _, draft = self.watch.drafts.pop(answer.request.request_id, (0, NO_DRAFT))
        drafts[draft.token_ids] = draft
        return draft.token_ids, tuple(answer.token_ids[2:])


def moved(right: Toy, wrong: Toy) -> float:
    """Return the total variation of the first token, on average over the places, if the engine is always wrong."""
    distances = [abs(wrong.first_token(last) - right.first_token(last)).sum() / 2 for last in range(VOCAB_SIZE)]
    return float(np.mean(distances))


def _table(laws: NDArray[np.float64]) -> TableLM:
    rows = tuple(tuple(int(1000 * prob) + 1 for prob in law) for law in laws)
    return TableLM(rows, rows[0])


def _with_its_coins(fault: type[WrongStepper]) -> type[WrongStepper]:
    """Return the fault with all its random decisions taken from the answer's coins, for enumeration."""

    class Enumerated(fault):  # type: ignore[valid-type, misc]
        def _other_coins(self, sequence: Answer) -> Coins:
            coins: Coins = sequence.coins  # type: ignore[assignment]
            return coins

    return Enumerated
