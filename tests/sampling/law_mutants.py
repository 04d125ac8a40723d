"""Wrong laws and wrong uses of a law: each differs from NumPy's by one thing, and must not pass for the core's."""

import numpy as np
import numpy_law

from outrider.verification.coupled import exponential_noise

INF = float("inf")


class Numpy:
    """A law made of an array, with everything that check_use asks."""

    def __init__(self, probs):
        self.probs = probs
        self.shape = probs.shape
        self.sum, self.max = probs.sum, probs.max

    def __array__(self, dtype=None, copy=None):
        return self.probs

    def __getitem__(self, token_id):
        return self.probs[token_id]

    def top(self, count):
        return numpy_law.top(self.probs, count)

    def draw(self, uniform):
        return numpy_law.draw(self.probs, uniform)

    def race(self, key):
        ids = np.flatnonzero(self.probs)
        with np.errstate(over="ignore"):
            return ids[np.argmin(exponential_noise(key, ids) / self.probs[ids])]

    def without(self, token_id):
        return numpy_law.without(self.probs, token_id)


class DrawsAtTheSeam(Numpy):
    def draw(self, uniform):
        index = np.searchsorted(np.cumsum(self.probs), uniform * self.probs.sum(), side="left")
        return int(min(index, len(self.probs) - 1))


class DrawsByAWrongSum(Numpy):
    def draw(self, uniform):
        return numpy_law.draw(self.probs, min(uniform * 0.99, 1.0))


class RacesByRank(Numpy):
    def race(self, key):
        ids = np.flatnonzero(self.probs)
        with np.errstate(over="ignore"):
            return ids[np.argmin(exponential_noise(key, np.arange(len(ids))) / self.probs[ids])]


class RacesOnTheLeastOfAGroupOnly(Numpy):
    def race(self, key):
        ids = np.flatnonzero(self.probs)
        return ids[np.argmin(exponential_noise(key, ids // 64 * 64) / self.probs[ids])]


class TopByHighestId(Numpy):
    def top(self, count):
        ids = (len(self.probs) - 1 - np.argsort(-self.probs[::-1], kind="stable"))[:count]
        return [(int(token_id), float(self.probs[token_id])) for token_id in ids if self.probs[token_id] > 0]


class TopWithTheImpossible(Numpy):
    def top(self, count):
        return [(int(one), float(self.probs[one])) for one in np.argsort(-self.probs, kind="stable")[:count]]


class WithoutNothing(Numpy):
    def without(self, token_id):
        return self.probs


class WithoutRenormalising(Numpy):
    def without(self, token_id):
        rest = self.probs.copy()
        rest[token_id] = 0
        return rest


def single_precision(row, **limits):
    return numpy_law.softmax(row, **limits).astype(np.float32).astype(np.float64)


def not_renormalised(row, **limits):
    probs = numpy_law.softmax(row, **limits)
    return np.where(probs > 0, numpy_law.softmax(row, temperature=limits["temperature"]), 0)


def top_k_with_ties(row, top_k=0, **limits):
    if not top_k:
        return numpy_law.softmax(row, **limits)
    least = np.sort(row)[max(len(row) - top_k, 0)]
    return numpy_law.softmax(np.where(row >= least, row, np.float32(-INF)), **limits)


def nucleus_without_its_last(row, top_p=1.0, **limits):
    probs = numpy_law.softmax(row, top_p=top_p, **limits)
    if top_p < 1 and np.count_nonzero(probs) > 1:
        probs[np.lexsort((-np.arange(len(row)), np.where(probs > 0, probs, INF)))[0]] = 0
    return probs / probs.sum()


def limits_in_another_order(row, top_k=0, top_p=1.0, **limits):
    kept = numpy_law.softmax(row, top_p=top_p, temperature=limits["temperature"]) > 0
    return numpy_law.softmax(np.where(kept, row, np.float32(-INF)), top_k=top_k, **limits)


def typical_of_the_likeliest(row, typical_p=1.0, top_p=1.0, **limits):
    return numpy_law.softmax(row, top_p=min(typical_p, top_p), **limits)


def min_p_of_the_raw_law(row, min_p=0.0, temperature=1.0, **limits):
    kept = numpy_law.softmax(row, min_p=min_p) > 0
    return numpy_law.softmax(np.where(kept, row, np.float32(-INF)), temperature=temperature, **limits)


WRONG_LAWS = [
    *(single_precision, not_renormalised, top_k_with_ties, nucleus_without_its_last, limits_in_another_order),
    *(typical_of_the_likeliest, min_p_of_the_raw_law),
]
WRONG_USES = [
    *(DrawsAtTheSeam, DrawsByAWrongSum, RacesByRank, RacesOnTheLeastOfAGroupOnly, TopByHighestId),
    *(TopWithTheImpossible, WithoutNothing, WithoutRenormalising),
]


class Wrong:
    def __init__(self, softmax, kind):
        self.softmax = lambda row, **limits: kind(softmax(row, **limits))
