"""Verification rules: what the target's law makes of a draft.

Pure functions ``(draft, target_probs, coins) -> VerificationResult``. They run on float64 in production and, the very
same code, on fractions in the proofs (:mod:`outrider.verification.exact`). They never modify what they are given. They
know nothing of models, text or requests.
"""

from outrider.verification.block import verify_block
from outrider.verification.coins import CoinSource, Purpose
from outrider.verification.coupled import RaceCoins
from outrider.verification.point_mass import verify_greedy, verify_point_mass
from outrider.verification.token import verify_token
from outrider.verification.tree import verify_tree, verify_tree_greedy

__all__ = [
    "CoinSource",
    "Purpose",
    "RaceCoins",
    "verify_block",
    "verify_greedy",
    "verify_point_mass",
    "verify_token",
    "verify_tree",
    "verify_tree_greedy",
]
