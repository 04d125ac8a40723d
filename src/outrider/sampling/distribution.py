"""Logits to probabilities: temperature, then min_p, then top_k, then top_p.

The order is vLLM's. Temperature comes first so that every limit speaks of the law that is really sampled; top_p comes
last and takes its share of what min_p and top_k have left. Among equal logits the lower id counts as the likelier one,
everywhere: ``top_k`` keeps exactly ``top_k`` tokens, ``top_p`` a set that does not depend on a sorting algorithm.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider.errors import NumericalError
from outrider.sampling.params import SamplingParams
from outrider.types import Logits, Probs


def target_probs(logits: Logits, params: SamplingParams) -> Probs:
    """Return the law of the next token for each row of logits.

    A draft model shapes its own law with it too.

    Args:
        logits: ``[rows, vocab_size]`` float32; minus infinity excludes a token. Not modified.
        params: Temperature and limits. Temperature 0 gives the point mass on the most likely token.

    Returns:
        ``[rows, vocab_size]`` float64, each row summing to one.

    Raises:
        NumericalError: A row with NaN or plus infinity, or with no token left.
    """
    best = greedy_token_ids(logits)
    probs = np.zeros(logits.shape, dtype=np.float64)
    if params.is_greedy:
        probs[np.arange(len(best)), best] = 1.0
        return probs
    for row, best_id in enumerate(best):
        kept = _kept(logits[row], best_id, params)
        weights = np.exp(_scaled(logits[row][kept], logits[row][best_id], params.temperature))
        probs[row][kept] = weights / weights.sum()
    return probs


def greedy_token_ids(logits: Logits) -> NDArray[np.intp]:
    """Return the most likely token of each row ``[rows, vocab_size]``, the lowest id on a tie.

    Raises:
        NumericalError: A row with NaN or plus infinity, or with no token left.
    """
    best = np.argmax(logits, axis=1)  # the first NaN, if there is one
    top = logits[np.arange(len(best)), best]
    if not np.isfinite(top).all():
        row = int(np.flatnonzero(~np.isfinite(top))[0])
        raise NumericalError(
            f"row {row} of the logits has {top[row]} as its largest value (token {best[row]}); nothing is emitted from "
            "it: the model file may be damaged, or its numbers out of range"
        )
    return best


def _scaled(logits: Logits, top: np.float32, temperature: float) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # minus infinity is the right answer for a tiny temperature
        return (logits.astype(np.float64) - np.float64(top)) / temperature


def _kept(logits: Logits, best_id: int, params: SamplingParams) -> NDArray[np.intp]:
    """Return the ids that the limits leave, in ascending order."""
    ids = np.arange(len(logits))
    if params.min_p:
        ids = ids[logits >= logits[best_id] + params.temperature * math.log(params.min_p)]
    order = ids[np.argsort(-logits[ids], kind="stable")]
    if params.top_k is not None:
        order = order[: params.top_k]
    if params.top_p is not None:
        cumulated = np.cumsum(np.exp(_scaled(logits[order], logits[best_id], params.temperature)))
        order = order[: int(np.searchsorted(cumulated, params.top_p * cumulated[-1])) + 1]
    return np.sort(order)
