"""Verification of a draft by the rule that it calls for."""

from outrider.verification import verify_point_mass, verify_token


def verify(draft, target_probs, coins):
    rule = verify_point_mass if draft.probs is None else verify_token
    return rule(draft, target_probs, coins)
