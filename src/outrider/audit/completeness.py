"""Whether a certificate of a pair holds all that such an audit looks at, and one number of draws in all of it.

A piece of evidence that was left out cannot speak against anything, and the sums of what remains come out all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from outrider.audit.certificate import Certificate
from outrider.audit.evidence import Evidence
from outrider.audit.pair import GREEDY, SEEDED
from outrider.audit.sampled import ROWS
from outrider.audit.tally import COURSES, DIRECTED, EVERY, FIRST, IMPOSSIBLE, joint_name


def missing(certificate: Certificate) -> list[str]:
    """Return what is missing from a certificate, and what contradicts itself in it; nothing of kinds but ``pair``."""
    if certificate.kind != "pair":
        return []
    joint = certificate.claim.shown_by or ""
    wanted = joint_name(num) if isinstance(num := certificate.settings.get("num_tokens"), int) else None
    problems = [] if joint == wanted else [f"claim.shown_by is {joint[:60]!r} and should be {wanted!r}"]
    problems += _of_evidence("evidence", certificate.evidence, (GREEDY, SEEDED, ROWS), joint)
    for number, control in enumerate(certificate.controls):
        problems += _of_evidence(f"controls.{number}.evidence", control.evidence, (), joint)
    return problems


def _of_evidence(where: str, evidence: Sequence[Evidence], others: Sequence[str], joint: str) -> list[str]:
    nums = {one.name: one.num for one in evidence}
    draws, tokens = (FIRST, joint, DIRECTED, COURSES[0]), (IMPOSSIBLE, EVERY, COURSES[1])
    problems = [f"{where} lacks {name!r}" for name in (*others, *draws, *tokens) if name not in nums]
    for names in (draws, tokens):
        found = {name: nums[name] for name in names if name in nums}
        if len(set(found.values())) > 1:
            problems.append(f"{where} has different numbers of draws: {found}")
    return problems
