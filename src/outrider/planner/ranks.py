"""How often a draft model's first, second, ... candidate for a place is the one accepted, position by position.

One pass of the draft over a target's own answer gives its law at every position of it (teacher forcing). Trees of draft
tokens are shaped by these chances, and the first of them is what a single draft token is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outrider.backends.base import Rows
from outrider.backends.prefill import PIECE
from outrider.engine.loading import Model
from outrider.planner.meter import Setting
from outrider.planner.recorded import Recording
from outrider.sampling import LawShaper
from outrider.sampling.distribution import token_law
from outrider.types import Logits, Weights
from outrider.verification import CoinSource, Purpose
from outrider.verification.law import difference, normalised, without

NUM_RANKS = 4
_ROWS = 32


@dataclass(frozen=True, slots=True)
class PositionRanks:
    """Acceptance at one position of an answer.

    Attributes:
        by_rank: For each of the first candidates, the chance that it is the one accepted: greedily 0 or 1.
        overlap: The chance that one draft token is accepted: greedily 0 or 1, otherwise the sum of the smaller
            probabilities (Leviathan et al., 2211.17192, corollary 3.6).
    """

    by_rank: tuple[float, ...]
    overlap: float


def ranks(setting: Setting, recording: Recording, draft: Model) -> list[PositionRanks]:
    """Return the acceptance of a draft model's candidates at each position of an answer that its context holds.

    Args:
        setting: How the answer was made.
        recording: The answer, with the target's laws if it was sampled.
        draft: A model with the target's tokens.
    """
    backend, vocab_size = draft.backend, setting.target.vocab_size
    fed = [*recording.prompt_ids, *recording.answer_ids[:-1]][: backend.max_length]
    first = len(recording.prompt_ids) - 1
    if max(fed) >= backend.vocab_size:
        return []
    shaper = LawShaper(setting.compiled, recording.prompt_ids)
    found: list[PositionRanks] = []
    cache_id = backend.open_sequence()
    try:
        while (start := backend.length(cache_id)) < min(first, len(fed)):
            backend.forward([Rows(cache_id, fed[start : min(start + PIECE, first)], num_logits=0)])
        for start in range(first, len(fed), _ROWS):
            rows = fed[start : start + _ROWS]
            for row in backend.forward([Rows(cache_id, rows, num_logits=len(rows))]):
                place = len(found)
                shaped = shaper.shape(_as_wide(row, vocab_size)[np.newaxis], ())[0]
                found.append(_at(shaped, shaper, recording, place))
                shaper.advance(recording.answer_ids[place])
    finally:
        backend.close_sequence(cache_id)
    return found


def _as_wide(row: Logits, vocab_size: int) -> Logits:
    missing = vocab_size - len(row)
    return row[:vocab_size] if missing <= 0 else np.pad(row, (0, missing), constant_values=-np.inf)


def _at(row: Logits, shaper: LawShaper, recording: Recording, place: int) -> PositionRanks:
    if recording.laws is None:
        said = recording.answer_ids[place]
        order = _likeliest(row, NUM_RANKS)
        by_rank = tuple(float(token_id == said) for token_id in order)
        return PositionRanks(by_rank, by_rank[0])
    drafted = token_law(row, shaper.params)
    coins = CoinSource(recording.seed).at(len(recording.prompt_ids) + place, Purpose.DRAFT)
    draws: list[int] = []
    left: Weights = drafted
    while len(draws) < NUM_RANKS and left.sum() > 0:
        draws.append(coins.draw(left))
        left = without(left, draws[-1])
    target = recording.laws[place]
    overlap = 1 - difference(target, drafted).sum()
    return PositionRanks(ranks_of_draws(target, drafted, draws), min(1.0, max(0.0, float(overlap))))


def _likeliest(row: Logits, count: int) -> list[int]:
    """Return the ids of the largest logits, the lowest on a tie."""
    found: list[int] = []
    row = row.copy()
    while len(found) < count:
        found.append(int(row.argmax()))
        row[found[-1]] = -np.inf
    return found


def ranks_of_draws(target: Weights, drafted: Weights, token_ids: Sequence[int]) -> tuple[float, ...]:
    """Return for each of some draws without replacement the chance that it is the one accepted.

    Recursive rejection, as :func:`~outrider.verification.tree.verify_siblings` does it.

    Args:
        target: The target's law, ``[vocab_size]``.
        drafted: The law that the first was drawn from.
        token_ids: The draws.
    """
    chances: list[float] = []
    left = 1.0
    for token_id in token_ids:
        share = left * min(1.0, target[token_id] / drafted[token_id])
        chances.append(float(share))
        left -= share
        rest, undrawn = difference(target, drafted), without(drafted, token_id)
        if rest.sum() == 0 or undrawn.sum() == 0:
            break
        target, drafted = normalised(rest), undrawn
    return (*chances, *[0.0] * (NUM_RANKS - len(chances)))
