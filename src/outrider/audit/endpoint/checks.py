"""What a part of the audit of a server came to."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.audit.evidence import Equality, Evidence


@dataclass(frozen=True, slots=True)
class Check:
    """Evidence, and what it means in words.

    Attributes:
        evidence: Without a case or an observation if the check found nothing out.
        summary: What was seen; where nothing could be found out, what would be needed.
        is_needed: Whether an audit that finds nothing out here cannot conclude anything. Not so of what the server does
            not offer, with or without speculation.
    """

    evidence: Evidence
    summary: str
    is_needed: bool = False

    def verdict(self, level: float) -> str:
        """Return ``"pass"``, ``"fail"`` or ``"inconclusive"``, of this check alone."""
        if self.evidence.num == 0:
            return "inconclusive"
        return "fail" if self.evidence.finding().p_value < level else "pass"


def nothing(name: str, needed: str, *, is_needed: bool = False) -> Check:
    """Return a check that found nothing out, and what would be needed."""
    return Check(Equality(name, 0, 0), needed, is_needed)


def equality(name: str, cases: int, wrong: list[str], passed: str) -> Check:
    """Return a check of cases that must all be right.

    Args:
        name: Of the check.
        cases: How many there are.
        wrong: In words, those that are not; only the first few are kept.
        passed: What to say if there is none.
    """
    evidence = Equality(name, cases, len(wrong), tuple(wrong[:3]))
    return Check(evidence, wrong[0] + (f", and {len(wrong) - 1} more" if wrong[1:] else "") if wrong else passed)
