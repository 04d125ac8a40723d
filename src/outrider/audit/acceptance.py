"""How often draft tokens ought to be accepted, worked out from the two laws without the rules' own code.

Accepting too little is lossless and slow, and no test of the output sees it. Accepting too much is seen here first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from outrider.audit.cells import Path, PrefixLaws
from outrider.audit.draws import Draw
from outrider.engine.outputs import Method
from outrider.types import Draft, Probs, TreeDraft

# Depth, whether the draft was accepted as deep as that, and the chance of it given all that was decided before.
Decision = tuple[int, bool, float]


def decisions(draw: Draw, laws: PrefixLaws) -> Iterator[Decision]:
    """Yield what was decided about the draft of a draw's first round, beside its chance."""
    first = draw.rounds[0]
    if not len(first.draft) or draw.method is None:
        return
    if isinstance(first.draft, TreeDraft):
        chance = _any_sibling(first.draft, laws.probs(()), draw.method)
        if chance is not None:
            yield 1, first.num_accepted >= 1, chance
        return
    yield from _chain(first.draft, first.num_accepted, draw.method, laws)


def _chain(draft: Draft, num_accepted: int, method: Method, laws: PrefixLaws) -> Iterator[Decision]:
    num_drawn = 0 if draft.probs is None else draft.probs.shape[0]
    weight = 1.0  # Sun et al. (2403.10444): the chance that the draft so far is accepted, given it
    for depth, token_id in enumerate(draft.token_ids, start=1):
        path: Path = draft.token_ids[: depth - 1]
        if depth > num_drawn or draft.probs is None:
            if num_accepted >= depth - 1:
                yield depth, num_accepted >= depth, laws.stretch(path, token_id)[1]
            continue
        target, drafted = laws.probs(path), np.asarray(draft.probs[depth - 1], dtype=np.float64)
        if method == "block":
            yield depth, num_accepted >= depth, float(np.minimum(drafted, weight * target).sum())
            weight = min(1.0, weight * target[token_id] / drafted[token_id])
        elif num_accepted >= depth - 1:
            yield (
                depth,
                num_accepted >= depth,
                _race(target, drafted) if method == "coupled" else _overlap(target, drafted),
            )


def _overlap(target: Probs, drafted: Probs) -> float:
    """Return the chance that a token drawn from the draft's law is accepted by the token rule."""
    return float(np.minimum(target, drafted).sum())


def _race(target: Probs, drafted: Probs) -> float:
    """Return the chance that two races on the same noise have one winner.

    ``sum over i of 1 / sum over j of max(target_j / target_i, drafted_j / drafted_i)`` (Daliri et al., 2408.07978),
    with the inner sum cut in two where the order of ``drafted / target`` passes ``i``.
    """
    both = np.flatnonzero((target > 0) & (drafted > 0))
    ratio = drafted[both] / target[both]
    order = np.argsort(ratio)
    p, q = target[both][order], drafted[both][order]
    up_to = np.cumsum(p) + target[drafted == 0].sum()
    beyond = q.sum() - np.cumsum(q) + drafted[target == 0].sum()
    return float((1 / (up_to / p + beyond / q)).sum())


def _any_sibling(draft: TreeDraft, target: Probs, method: Method) -> float | None:
    """Return the chance that one of the candidates for the first token is accepted; None if it is not known."""
    candidates = [token_id for token_id, parent in zip(draft.token_ids, draft.parents, strict=True) if parent < 0]
    told = draft.probs[0]
    if told is None:
        return float(target[list(set(candidates))].sum())
    if method == "coupled":
        return None  # what was drawn tells of the noise that decides
    drafted = np.array(told, dtype=np.float64)
    refused, left = 1.0, target
    for token_id in candidates:
        refused *= 1 - min(1.0, left[token_id] / drafted[token_id])
        if refused == 0:
            break
        rest = np.maximum(left - drafted, 0)
        left = rest / rest.sum() if rest.sum() > 0 else left
        drafted[token_id] = 0
        drafted = drafted / drafted.sum() if drafted.sum() > 0 else drafted
    return 1 - refused
