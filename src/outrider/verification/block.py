"""Block verification: the rule of Sun et al. (2403.10444, algorithm 2)."""

from __future__ import annotations

from typing import Any

from outrider.errors import OutriderError, UsageError
from outrider.types import Coins, Draft, DraftProbs, Outcome, TargetProbs, VerificationResult
from outrider.verification.check import check_draft, check_drawn, check_law
from outrider.verification.law import difference
from outrider.verification.point_mass import verify_chosen


def verify_block(draft: Draft, target_probs: TargetProbs, coins: Coins) -> VerificationResult:
    """Accept as long a beginning of the draft as the two laws of whole beginnings allow.

    The token rule weighs each token by itself; this rule weighs beginnings, so that a token that the target likes
    better than the draft did makes up for an earlier one that it likes less. It accepts at least as many tokens on
    average, never fewer, and the same ones if the target is greedy.

    It looks ahead, but no further than plain decoding could get: not beyond a token that the target's law excludes,
    nor beyond a row that is no law. Such a row is the law of a certain error, so no token there can be accepted and
    the draft may as well end before it; its error is raised just when the beginning up to it is accepted.

    Args:
        draft: With ``probs``, the laws that its tokens were really drawn from. Those beyond were chosen: once all that
            were drawn are accepted they are verified as point masses. That some follow may depend on what was drawn.
        target_probs: ``[len(draft) + 1, vocab_size]``, the target's law at each draft position and after the last.
        coins: Independent of the decisions that drew the draft. Decisions about tokens that are then turned back are
            taken too, so none may be used again in a later round.

    Raises:
        UsageError: Arguments that do not fit, or a draft that is not honest about its laws.
        NumericalError: NaN where a probability is needed.
    """
    check_draft(draft, target_probs)
    if draft.probs is None:
        raise UsageError("this draft has no probs; verify_point_mass is the rule for tokens chosen without drawing")
    weights = _weights(draft, draft.probs, target_probs)
    length, passes = len(weights) - 1, False
    if coins.accept(weights[length], 1):
        return verify_chosen(draft, length, target_probs, coins)
    # Every beginning is tried by itself and the longest that passes counts, so the longest is tried first. The empty
    # one always passes: its weight is 1.
    while not passes:
        length -= 1
        left = difference(target_probs[length], draft.probs[length], weights[length])
        total = left.sum()
        passes = weights[length] == 1 or coins.accept(total, total + 1 - weights[length])
    # Rounding may have left nothing; see outrider.verification.token.residual.
    return VerificationResult(length, coins.draw(left if total > 0 else target_probs[length]), Outcome.RECOVERED)


def _weights(draft: Draft, draft_probs: DraftProbs, target_probs: TargetProbs) -> list[Any]:
    """Return the chance that a draft came by each of its beginnings rightly: from 1 for the empty one, capped at 1.

    The last is that of all that was drawn, or of the longest beginning that plain decoding could get to the end of.
    """
    weights: list[Any] = [1]
    for row, token_id in enumerate(draft.token_ids[: draft_probs.shape[0]]):
        if weights[-1] == 0 or not _is_law(target_probs, row):
            break
        check_law(draft_probs[row], "draft_probs", row)
        check_drawn(draft_probs[row], token_id, row)
        likely, drafted = weights[-1] * target_probs[row][token_id], draft_probs[row][token_id]
        weights.append(1 if likely >= drafted else likely / drafted)
    return weights


def _is_law(target_probs: TargetProbs, row: int) -> bool:
    """Return whether there is a law to look ahead to; if not, whoever gets there raises the error."""
    try:
        check_law(target_probs[row], "target_probs", row)
    except OutriderError:
        return False
    return True
