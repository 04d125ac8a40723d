"""Verification rules: what the target's law makes of a draft.

Pure functions ``(draft, target_probs, coins) -> VerificationResult``. They run on float64 in production and, the very
same code, on fractions in the proofs (:mod:`outrider.verification.exact`). They never modify what they are given. They
know nothing of models, text or requests.
"""

from outrider.types import Coins, Draft, Probs, VerificationResult
from outrider.verification.block import verify_block
from outrider.verification.coins import CoinSource, Purpose
from outrider.verification.coupled import RaceCoins
from outrider.verification.point_mass import verify_greedy, verify_point_mass
from outrider.verification.token import verify_token
from outrider.verification.tree import TreeDraft, TreeResult, verify_tree

__all__ = [
    "CoinSource",
    "Purpose",
    "RaceCoins",
    "TreeDraft",
    "TreeResult",
    "verify",
    "verify_block",
    "verify_greedy",
    "verify_point_mass",
    "verify_token",
    "verify_tree",
]


def verify(draft: Draft, target_probs: Probs, coins: Coins) -> VerificationResult:
    """Verify by the rule that the draft calls for; see :func:`verify_token` and :func:`verify_point_mass`."""
    rule = verify_point_mass if draft.probs is None else verify_token
    return rule(draft, target_probs, coins)
