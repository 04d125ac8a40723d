"""Logits to probabilities: temperature, then min_p, then top_k, then top_p, then typical_p.

The order is vLLM's (``vllm/v1/sample/sampler.py``), since requests written for its server should mean the same here;
typical_p, which it lacks, comes last, as in transformers. Temperature comes first, so every limit speaks of the law
that is really sampled; top_p takes its share of what min_p and top_k have left, and typical_p of what top_p has left.

Among equal logits the lower id counts as the likelier one, everywhere: ``top_k`` keeps exactly ``top_k`` tokens where
vLLM keeps every token that ties with the last one, and a nucleus does not depend on a sorting algorithm.

A vocabulary has 150,000 entries and there is a row for every draft token, so nothing here sorts more of a row than it
must.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.errors import NumericalError
from outrider.sampling.params import SamplingParams
from outrider.types import Logits, Probs

Ids = NDArray[np.intp]

# How many of the most likely tokens to look at first for a nucleus; eight times as many each time that falls short.
_FIRST_LOOK = 1024


def target_probs(logits: Logits, params: SamplingParams) -> Probs:
    """Return the law of the next token for each row of logits.

    The target's law, and just as well a draft model's: what counts is that a draft token is drawn from the very array
    that is handed to verification.

    Args:
        logits: ``[rows, vocab_size]`` float32; minus infinity excludes a token. Not modified.
        params: Temperature and limits. Temperature 0 gives the point mass on the most likely token.

    Returns:
        ``[rows, vocab_size]`` float64, each row summing to one.

    Raises:
        NumericalError: A row holds NaN or plus infinity, or has no token left.
    """
    best = greedy_token_ids(logits)
    if params.is_greedy:
        probs = np.zeros(logits.shape, dtype=np.float64)
        probs[np.arange(len(best)), best] = 1.0
        return probs
    if params.min_p or params.top_k is not None or _limits(params.top_p) or _limits(params.typical_p):
        probs = np.zeros(logits.shape, dtype=np.float64)
        for row, best_id in enumerate(best):
            kept = _kept(logits[row], best_id, params)
            probs[row, kept] = _softmax(logits[row, kept], logits[row, best_id], params.temperature)
        return probs
    probs = np.empty(logits.shape, dtype=np.float64)
    for row, best_id in enumerate(best):
        probs[row] = _softmax(logits[row], logits[row, best_id], params.temperature)
    return probs


def greedy_token_ids(logits: Logits) -> Ids:
    """Return the most likely token of each row ``[rows, vocab_size]``, the lowest id on a tie.

    Raises:
        NumericalError: A row holds NaN or plus infinity, or has no token left.
    """
    best: Ids = np.argmax(logits, axis=1)  # of NaN if there is any
    top = logits[np.arange(len(best)), best]
    if not np.isfinite(top).all():
        row = int(np.flatnonzero(~np.isfinite(top))[0])
        raise NumericalError(
            f"row {row} of the logits has {top[row]} for its largest value (token {best[row]}), so nothing is emitted "
            "from it: the model's file may be damaged, its numbers out of range, or every token excluded"
        )
    return best


def _limits(share: float | None) -> bool:
    return share is not None and share < 1.0  # 1 keeps everything, the tail that rounding hides included


def _weights(logits: Logits, top: np.float32, temperature: float) -> NDArray[np.float64]:
    """Return ``exp((logits - top) / temperature)``: at most one each, and one for the most likely token."""
    weights = np.subtract(logits, top, dtype=np.float64)
    with np.errstate(over="ignore"):  # a tiny temperature sends all others to minus infinity, as it should
        weights /= temperature
    return np.exp(weights, out=weights)


def _softmax(logits: Logits, top: np.float32, temperature: float) -> NDArray[np.float64]:
    weights = _weights(logits, top, temperature)
    weights /= weights.sum()
    return weights


def _kept(logits: Logits, best_id: int, params: SamplingParams) -> Ids:
    """Return the ids in one row ``[vocab_size]`` that the limits leave."""
    top = logits[best_id]
    if params.min_p:
        ids = np.flatnonzero(logits >= np.float64(top) + params.temperature * math.log(params.min_p))
    else:
        ids = np.arange(len(logits))
    if params.top_k is not None:
        ids = ids[_highest(logits[ids], params.top_k)[: params.top_k]]
    if params.top_p is not None and _limits(params.top_p):
        ids = ids[_fewest(logits[ids], _weights(logits[ids], top, params.temperature), params.top_p)]
    if params.typical_p is not None and _limits(params.typical_p):
        weights = _weights(logits[ids], top, params.temperature)
        ids = ids[_fewest(_typicality(weights), weights, params.typical_p)]
    return ids


def _typicality(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how close each token's surprise is to the entropy, which is the mean surprise: 0 at best, or less."""
    probs = weights / weights.sum()
    with np.errstate(divide="ignore"):
        surprise = -np.log(probs)
    possible = probs > 0
    entropy = probs[possible] @ surprise[possible]
    typicality: NDArray[np.float64] = -np.abs(surprise - entropy)
    return typicality


def _highest(values: NDArray[Any], count: int) -> Ids:
    """Return the places of at least ``count`` of the values, all if there are fewer: the highest first, then in order.

    It is more than ``count`` when the last one ties with others, so that a cut by value alone is complete.
    """
    places = np.arange(len(values))
    if count < len(values):
        last = np.partition(values, len(values) - count)[len(values) - count]
        places = np.flatnonzero(values >= last)
    return places[np.argsort(-values[places], kind="stable")]


def _fewest(values: NDArray[Any], weights: NDArray[np.float64], share: float) -> Ids:
    """Return the places of the fewest highest values whose weights reach a share of the sum of all weights."""
    total = weights.sum()
    count = _FIRST_LOOK
    while True:
        order = _highest(values, count)
        needed = int(np.searchsorted(np.cumsum(weights[order]), share * total)) + 1
        if needed <= len(order) or len(order) == len(values):
            return order[:needed]
        count *= 8
