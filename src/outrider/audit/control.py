"""The negative control: an engine that is wrong in one place, which the audit must find out.

It lives here and nowhere else: nothing that is lossy can be reached from the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from outrider.engine.commit import Halt
from outrider.engine.sequence import Sequence
from outrider.engine.step import Stepper
from outrider.sampling import TargetLaw
from outrider.types import Coins, Outcome, Probs, Proposal, Verdict
from outrider.verification import CoinSource, Purpose

_OTHER_COINS = 0x5851F42D4C957F2D  # so that the wrong draw does not look at the rule's own coins


@dataclass(frozen=True, slots=True)
class WrongStepper(Stepper):
    """Replaces a refused draft token by a draw from the whole law of the target, not from what is left of it.

    The commonest fault of all, shipped more than once (docs/audit.md): under every rule the target's likeliest tokens
    come out too often where a draft was refused.

    Attributes:
        wrong_share: In which share of the refusals it is wrong; below 1 for studies of power.
    """

    wrong_share: float = 1.0

    def _verify(self, sequence: Sequence, draft: Proposal, law: TargetLaw) -> Verdict | Halt:
        verdict = Stepper._verify(self, sequence, draft, law)
        if isinstance(verdict, Halt) or verdict.outcome is not Outcome.RECOVERED:
            return verdict
        coins = self._other_coins(sequence)
        if not coins.accept(self.wrong_share, 1.0):
            return verdict
        row = verdict.path[-1] + 1 if verdict.path else 0
        return replace(verdict, next_token_id=self._instead(draft, law, row, coins))

    def _instead(self, draft: Proposal, law: TargetLaw, row: int, coins: Coins) -> int:  # noqa: ARG002 - of other faults
        """Return what is said after a refusal at a row."""
        return coins.draw(law.probs[row])

    def _other_coins(self, sequence: Sequence) -> Coins:
        source = CoinSource(sequence.request.seed ^ _OTHER_COINS, sequence.request.choice)
        return source.at(len(sequence.token_ids), Purpose.VERIFY)


def wrong_variant(
    stepper: Stepper, wrong_share: float = 1.0, variant: type[WrongStepper] = WrongStepper
) -> WrongStepper:
    """Return a stepper that is wrong, and like the given one in everything else."""
    return variant(
        target=stepper.target,
        vocab_size=stepper.vocab_size,
        eos_ids=stepper.eos_ids,
        detokenizer=stepper.detokenizer,
        drafter=stepper.drafter,
        num_speculative_tokens=stepper.num_speculative_tokens,
        max_tree_tokens=stepper.max_tree_tokens,
        rule=stepper.rule,
        wrong_share=wrong_share,
    )


def moved_by_fault(target: Probs, drafted: Probs | int | None) -> float:
    """Return the total variation between the target's law of a token and the law that this fault makes of it.

    Args:
        target: ``[vocab_size]`` float64.
        drafted: The law that one draft token is drawn from, or the token that is proposed without drawing, or None for
            no draft.
    """
    if drafted is None:
        return 0.0
    if isinstance(drafted, int):
        return float(target[drafted] * (1 - target[drafted]))
    accepted = np.minimum(target, drafted)
    return float(abs(accepted + (1 - accepted.sum()) * target - target).sum() / 2)
