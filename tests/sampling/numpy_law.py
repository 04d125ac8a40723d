"""Laws in NumPy, by sorting whole rows: what the core's are held against. Written to be read, not to be fast."""

import math

import numpy as np


def argmax(logits):
    """Where the largest value is, the first NaN if there is any; and the value."""
    best = int(np.argmax(logits))
    return best, float(logits[best])


def weights(logits, temperature):
    """``exp((logits - top) / temperature)``, nothing where that is less than e**-708."""
    with np.errstate(over="ignore"):
        exponents = (logits.astype(np.float64) - np.float64(logits.max())) / temperature
    return np.where(exponents >= -708, np.exp(exponents), 0.0)


def softmax(logits, temperature=1.0, min_p=0.0, top_k=0, top_p=1.0, typical_p=1.0):
    """The law ``[vocab_size]``: limits in the order of their names here, the lower id on a tie."""
    all_weights = weights(logits, temperature)
    ids = np.argsort(-logits, kind="stable")
    if min_p:
        ids = ids[logits[ids] >= np.float64(logits.max()) + temperature * math.log(min_p)]
    if top_k:
        ids = ids[:top_k]
    if top_p < 1:
        ids = ids[: fewest(all_weights[ids], top_p)]
    if typical_p < 1:
        ids = np.sort(ids)
        ids = ids[np.argsort(-typicality(all_weights[ids]), kind="stable")]
        ids = ids[: fewest(all_weights[ids], typical_p)]
    probs = np.zeros(len(logits))
    probs[ids] = all_weights[ids] / all_weights[ids].sum()
    return probs


def fewest(ordered, share):
    """How many of the first weights it takes to reach a share of the sum."""
    return int(np.searchsorted(np.cumsum(ordered), share * ordered.sum())) + 1


def typicality(some):
    """How close each token's surprise is to the entropy: 0 at best, or less."""
    probs = some / some.sum()
    with np.errstate(divide="ignore"):
        surprise = -np.log(probs)
    possible = probs > 0
    return -np.abs(surprise - probs[possible] @ surprise[possible])


def draw(probs, uniform):
    """The first id at which the cumulated weights exceed a share of their sum."""
    cumulated = np.cumsum(probs)
    index = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
    return int(min(index, np.flatnonzero(probs)[-1]))


def top(probs, count):
    """The likeliest ids and their probabilities, none that is impossible."""
    ids = np.argsort(-probs, kind="stable")[:count]
    return [(int(token_id), float(probs[token_id])) for token_id in ids if probs[token_id] > 0]


def without(probs, token_id):
    """The law of another token."""
    rest = probs.copy()
    rest[token_id] = 0
    return rest / rest.sum() if rest.any() else rest
