"""What rules do with laws: on arrays, as here, and on the core's laws, which do the same without touching all of them.

An array is the reference: of fractions in the proofs, of float64 wherever somebody has one. Production hands over
:class:`outrider._core.Law`, whose entries are worked out where they are looked at; the rules' code is the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from outrider._core import Law
from outrider.errors import NumericalError
from outrider.types import Probs, Weights


class LawRows:
    """Laws one after the other, where an array ``[rows, vocab_size]`` may stand.

    It is a :class:`outrider.types.DraftProbs`.

    Args:
        laws: Each over ``vocab_size`` ids.
        vocab_size: How many ids there are.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, laws: Sequence[Law], vocab_size: int) -> None:
        self.shape = (len(laws), vocab_size)
        self._laws = laws

    def __len__(self) -> int:
        return len(self._laws)

    def __getitem__(self, row: int, /) -> Law:
        return self._laws[row]

    def __iter__(self) -> Iterator[Law]:
        return iter(self._laws)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Probs:
        return np.array([np.asarray(law) for law in self._laws], dtype=dtype).reshape(self.shape)


def difference(target: Weights, drafted: Weights, scale: Any = 1) -> Weights:
    """Return ``max(scale * target - drafted, 0)``, unnormalised: what a rejection leaves of the target's law."""
    if isinstance(target, Law) or isinstance(drafted, Law):
        return as_law(target).residual(as_law(drafted), scale)
    left: Probs = np.maximum(scale * as_array(target) - as_array(drafted), 0)
    return left


def normalised(weights: Weights) -> Weights:
    """Return the law of which these are multiples."""
    return weights.normalised() if isinstance(weights, Law) else as_array(weights) / weights.sum()


def without(probs: Weights, token_id: int) -> Weights:
    """Return the law of another token than this one; all zero if there is none."""
    if isinstance(probs, Law):
        return probs.without(token_id)
    rest: Probs = np.array(probs)
    rest[token_id] = 0
    total = rest.sum()
    if total > 0:
        rest /= total
    return rest


def as_law(weights: Weights) -> Law:
    """Return weights as the core's kind of law.

    Raises:
        NumericalError: They are not finite numbers of at least zero.
    """
    if isinstance(weights, Law):
        return weights
    try:
        return Law.listed(np.ascontiguousarray(as_array(weights), dtype=np.float64))
    except ValueError as error:
        raise NumericalError(str(error)) from None


def as_array(weights: Weights) -> Probs:
    """Return weights as an array ``[vocab_size]``; an array as it is."""
    return weights if isinstance(weights, np.ndarray) else np.asarray(weights)
