"""The audit of anything that can be called for draws: an engine under test, without a server around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.audit.certificate import Certificate, Claim
from outrider.audit.comparison import LEAST_GROUP, Draw, against_law, compare
from outrider.audit.evidence import Equality, Evidence
from outrider.errors import UsageError
from outrider.models.fields import shown

# From the token ids of a prefix and a number: so many draws of the tokens that follow, each a list of token ids.
Sample: TypeAlias = Callable[[Sequence[int], int], Sequence[Sequence[int]]]
# From the token ids of a prefix: the law of the next token, ``[vocab_size]``.
NextLaw: TypeAlias = Callable[[Sequence[int]], NDArray[np.float64]]
NAME = "draws"


def audit_callable(  # noqa: PLR0913 - what there is to say of an audit
    sample: Sample,
    prefixes: Sequence[Sequence[int]],
    *,
    law: NextLaw | None = None,
    baseline: Sample | None = None,
    num_draws: int,
    total_variation: float,
    now: datetime,
    level: float = 1e-4,
    subject: Mapping[str, Any] | None = None,
    versions: Mapping[str, Any] | None = None,
    command: str = "",
) -> Certificate:
    """Compare draws with the target's law, or with draws of the same model without speculation.

    Args:
        sample: What is audited. Draws must be independent, and at least two tokens long where the first token of an
            answer is always drawn plainly, as in most engines.
        prefixes: Where draws start.
        law: The target's law, of any tokens after any prefix.
        baseline: Or what draws from it.
        num_draws: After each prefix.
        total_variation: What must not go unnoticed.
        now: The time of day, for the certificate.
        level: The chance that a right sampler fails.
        subject: What is audited, for the certificate.
        versions: The same.
        command: The same.

    Raises:
        UsageError: There is nothing, or too much, to compare with, or a draw is no list of token ids.
    """
    if (law is None) == (baseline is None):
        raise UsageError("give either the law or a baseline to compare with")
    if not prefixes or num_draws < 1:
        raise UsageError(
            f"{len(prefixes)} prefixes and {num_draws} draws are given; there must be at least one of each"
        )
    evidence, note = _evidence(sample, prefixes, num_draws, law, baseline)
    return Certificate(
        kind="endpoint",
        created=now.isoformat(timespec="seconds"),
        command=command,
        subject=subject or {"sampler": getattr(sample, "__qualname__", type(sample).__name__)},
        settings={"prefixes": [list(prefix) for prefix in prefixes], "num_draws": num_draws},
        versions=versions or {},
        claim=Claim(level, total_variation, shown_by=NAME),
        evidence=(evidence,),
        notes=(note,),
    )


def _evidence(
    sample: Sample, prefixes: Sequence[Sequence[int]], num: int, law: NextLaw | None, baseline: Sample | None
) -> tuple[Evidence, str]:
    """Return the evidence, and what it means in words."""
    starts = {str(number): tuple(prefix) for number, prefix in enumerate(prefixes)}
    ours = {name: _drawn(sample, prefix, num, "sample") for name, prefix in starts.items()}
    if num > 1 and all(len(set(draws)) == 1 for draws in ours.values()):
        needed = "every draw after a prefix is the same: give the sampler new random numbers for each"
        return Equality(NAME, 0, 0), needed
    evidence: Evidence
    if baseline is not None:
        theirs = {name: _drawn(baseline, prefix, num, "baseline") for name, prefix in starts.items()}
        evidence, distance = compare(NAME, ours, theirs)
    elif law is not None:
        evidence, distance = against_law(NAME, ours, lambda name, after: law((*starts[name], *after)))
    if evidence.num == 0:
        return (
            evidence,
            f"{NAME}: {num} after a prefix cannot be compared; raise num_draws to {LEAST_GROUP} at the very least",
        )
    return evidence, f"{NAME}: p = {evidence.finding().p_value:.2g}, {distance}"


def _drawn(sample: Sample, prefix: Sequence[int], num: int, name: str) -> list[Draw]:
    draws = [tuple(draw) for draw in sample(list(prefix), num)]
    if len(draws) != num:
        raise UsageError(f"{name} returned {len(draws)} draws instead of {num}")
    for draw in draws:
        if not draw or not all(isinstance(token, int | np.integer) and token >= 0 for token in draw):
            raise UsageError(f"{name} returned {shown(draw)}; a draw must be a list of at least one token id")
    return [tuple(map(int, draw)) for draw in draws]
