"""What passes cost among rounds: a curve of passes that were timed one after the other, bent to those seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outrider.backends.metered import Pass
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs

# A curve's points from here on are those of reading, where reading was seen. Arithmetic binds it, and memory what
# checks drafts: the two do not slow down alike.
_READING, _CHECKED = 64, 16
# Of all that passes took, what rows and context must account for, for its factor to be told from that of the rest.
_TELLING = 0.03


def live_costs(costs: Costs, target: str, passes: Sequence[Pass]) -> Costs:
    """Return what passes cost among rounds.

    Args:
        costs: Of passes timed one after the other.
        target: The model that does not draft.
        passes: Seen among rounds, of any of the models; one that has none keeps its costs.
    """
    by_model: dict[str, list[Pass]] = {}
    for one in passes:
        by_model.setdefault(one.model, []).append(one)
    drafts = {name: bent(curve, by_model.get(name, ())) for name, curve in costs.drafts.items()}
    return Costs(bent(costs.target, by_model.get(target, ())), drafts)


def bent(curve: PassCosts, passes: Sequence[Pass]) -> PassCosts:
    """Return a curve with one factor for what a pass of one row costs, and one for what rows and context add.

    The first is mostly the reading of weights, the second arithmetic; a neighbour takes more of one than of the other.
    Both are fitted by least squares, such that all passes together took what the curve says of them. Passes that read
    prompts have a factor of their own.
    """
    few = np.array([_parts(curve, one) for one in passes if not _reads(one)]).reshape(-1, 3)
    many = np.array([_parts(curve, one) for one in passes if _reads(one)]).reshape(-1, 3)
    whole, added = _two_factors(few)
    reads = many[:, 0].any()
    first = curve.at(1)
    points: list[tuple[int, float]] = []
    for rows, cost in curve.points:
        own = _factor(many) * cost if reads and rows >= _READING else whole * first + added * (cost - first)
        points.append((rows, max(own, points[-1][1] if points else 0.0)))
    return PassCosts(tuple(points), added * curve.per_context, added * curve.per_row_context)


def slower(curve: PassCosts, passes: Sequence[Pass]) -> float:
    """Return how much longer passes took, in all, than a curve says; those that read prompts are left out."""
    few = np.array([_parts(curve, one) for one in passes if not _reads(one)]).reshape(-1, 3)
    return _factor(few) if few[:, 0].any() else 1.0


def _reads(one: Pass) -> bool:
    """Whether a pass reads a text rather than checks a draft: it tells little of what it has read."""
    return one.rows > _CHECKED and one.num_logits < one.rows


def _parts(curve: PassCosts, one: Pass) -> tuple[float, float, float]:
    """Return what a pass took, what one of one row costs, and what its rows and context add."""
    first = curve.at(1)
    return one.seconds, first, curve.at(one.rows, one.length) - first


def _factor(parts: NDArray[np.float64]) -> float:
    return float(parts[:, 0].sum() / parts[:, 1:].sum())


def _two_factors(parts: NDArray[np.float64]) -> tuple[float, float]:
    if not len(parts) or not parts[:, 0].any():
        return 1.0, 1.0
    both = _factor(parts), _factor(parts)
    if parts[:, 2].std() < _TELLING * parts[:, 0].mean():
        return both
    whole, added = np.linalg.lstsq(parts[:, 1:], parts[:, 0], rcond=None)[0]
    return (float(whole), float(added)) if min(whole, added) > 0 else both
