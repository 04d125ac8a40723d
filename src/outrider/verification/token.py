"""Token verification: the rule of Leviathan et al. (2211.17192) and Chen et al. (2302.01318)."""

from __future__ import annotations

from outrider.errors import UsageError
from outrider.types import Coins, Draft, Outcome, TargetProbs, VerificationResult, Weights
from outrider.verification.check import check_draft, check_drawn, check_law
from outrider.verification.law import difference
from outrider.verification.point_mass import verify_chosen


def verify_token(draft: Draft, target_probs: TargetProbs, coins: Coins) -> VerificationResult:
    """Accept each draft token with probability ``min(1, target / draft)``; recover from the residual.

    Args:
        draft: With ``probs``, the laws that its tokens were really drawn from; those beyond are point masses.
        target_probs: ``[len(draft) + 1, vocab_size]``, the target's law at each draft position and after the last.
        coins: Independent of the decisions that drew the draft.

    Raises:
        UsageError: Arguments that do not fit, or a draft that is not honest about its laws.
        NumericalError: NaN where a probability is needed.
    """
    check_draft(draft, target_probs)
    if draft.probs is None:
        raise UsageError("this draft has no probs; verify_point_mass is the rule for tokens chosen without drawing")
    num_drawn = draft.probs.shape[0]
    for row, token_id in enumerate(draft.token_ids[:num_drawn]):
        target, drafted = target_probs[row], draft.probs[row]
        check_law(target, "target_probs", row)
        check_law(drafted, "draft_probs", row)
        check_drawn(drafted, token_id, row)
        if not coins.accept(target[token_id], drafted[token_id]):
            return VerificationResult(row, coins.draw(residual(target, drafted)), Outcome.RECOVERED)
    return verify_chosen(draft, num_drawn, target_probs, coins)


def residual(target: Weights, drafted: Weights) -> Weights:
    """Return ``max(target - drafted, 0)``: unnormalised, what the target's law has left after a rejection.

    A rejection implies that something is left. In floating point it may still cancel to nothing, when two laws that
    should be equal differ by rounding; the token is then drawn from the target's law itself, which errs by no more
    than the probability of getting there (about 1e-16).
    """
    weights = difference(target, drafted)
    return weights if weights.sum() > 0 else target
