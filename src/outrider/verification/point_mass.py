"""Verification of tokens that were chosen without drawing: n-gram matches, argmax drafts, predicted text."""

from __future__ import annotations

from outrider.errors import UsageError
from outrider.types import Coins, Draft, Outcome, TargetIds, TargetProbs, VerificationResult
from outrider.verification.check import check_law, check_target


def verify_point_mass(draft: Draft, target_probs: TargetProbs, coins: Coins) -> VerificationResult:
    """Draw every token from the target's law, for as long as the draft had foreseen it.

    A draft token is accepted with the target's probability of it, and a recovered token follows the target's law
    given that it is another one: the token rule for a draft law that is a point mass, without its residual. It is
    right for any draft whatever, and what it emits is what plain decoding draws with the same coins.

    Args:
        draft: ``probs`` is not looked at.
        target_probs: ``[len(draft) + 1, vocab_size]``, the target's law at each draft position and after the last.
        coins: Independent of the draft, or shared with it: both are right.

    Raises:
        UsageError: Arguments that do not fit.
        NumericalError: NaN where a probability is needed.
    """
    check_target(draft.token_ids, target_probs)
    return verify_chosen(draft, 0, target_probs, coins)


def verify_chosen(draft: Draft, num_accepted: int, target_probs: TargetProbs, coins: Coins) -> VerificationResult:
    """Verify what is left of a draft that has been accepted so far, all of it chosen, as point masses."""
    for row, draft_id in enumerate(draft.token_ids[num_accepted:], start=num_accepted):
        check_law(target_probs[row], "target_probs", row)
        token_id = coins.draw(target_probs[row])
        if token_id != draft_id:
            return VerificationResult(row, token_id, Outcome.RECOVERED)
    last = len(draft)
    check_law(target_probs[last], "target_probs", last)
    return VerificationResult(last, coins.draw(target_probs[last]), Outcome.BONUS)


def verify_greedy(draft: Draft, target_ids: TargetIds) -> VerificationResult:
    """Verify against a greedy target: every rule comes down to this when each target law is a point mass.

    Args:
        draft: Any; ``probs`` is not looked at.
        target_ids: ``len(draft) + 1`` ids, the target's choice at each draft position and after the last.

    Raises:
        UsageError: Another number of target ids.
    """
    if len(target_ids) != len(draft) + 1:
        raise UsageError(f"{len(target_ids)} target ids; a draft of {len(draft)} tokens needs {len(draft) + 1}")
    for row, draft_id in enumerate(draft.token_ids):
        if draft_id != target_ids[row]:
            return VerificationResult(row, int(target_ids[row]), Outcome.RECOVERED)
    return VerificationResult(len(draft), int(target_ids[len(draft)]), Outcome.BONUS)
