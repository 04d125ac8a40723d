"""Logits to probabilities: temperature, then min_p, then top_k, then top_p, then typical_p.

The order is vLLM's (``vllm/v1/sample/sampler.py``), since requests written for its server should mean the same here;
typical_p, which it lacks, comes last, as in transformers. Temperature comes first, so every limit speaks of the law
that is really sampled; top_p takes its share of what min_p and top_k have left, and typical_p of what top_p has left.

Among equal logits the lower id counts as the likelier one, everywhere: ``top_k`` keeps exactly ``top_k`` tokens where
vLLM keeps every token that ties with the last one, and a nucleus does not depend on a sorting algorithm.

A vocabulary has 150,000 entries and there is a row for every draft token, so the work is the core's
(``csrc/sampling``); ``tests/sampling/numpy_law.py`` has the same in NumPy, which it is held against.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from outrider._core import Law, argmax, likeliest
from outrider.errors import NumericalError
from outrider.sampling.params import SamplingParams
from outrider.types import Logits, Probs

Ids = NDArray[np.intp]


def token_law(logits: Logits, params: SamplingParams, *, borrow: bool = False) -> Law:
    """Return the law of the next token for one row of logits.

    The target's law, and just as well a draft model's: what counts is that a draft token is drawn from the very law
    that is handed to verification.

    Args:
        logits: ``[vocab_size]`` float32; minus infinity excludes a token. Not modified.
        params: Temperature and limits. Temperature 0 gives the point mass on the most likely token.
        borrow: The logits stay as they are while the law is used, so that no copy need be made of them.

    Raises:
        NumericalError: It holds NaN or plus infinity, or has no token left.
    """
    row = np.ascontiguousarray(logits, dtype=np.float32)
    if params.is_greedy:
        ids = greedy_token_ids(row[np.newaxis]).astype(np.int32)
        return Law.listed(np.ones(1), ids, len(row))
    try:
        return Law.softmax(
            row,
            temperature=params.temperature,
            min_p=params.min_p or 0.0,
            top_k=min(params.top_k or 0, len(row)),
            top_p=params.top_p or 1.0,
            typical_p=params.typical_p or 1.0,
            borrow=borrow,
        )
    except ValueError:
        greedy_token_ids(row[np.newaxis])  # says what is wrong with the row
        raise


def target_probs(logits: Logits, params: SamplingParams) -> Probs:
    """Return :func:`token_law` of each row of logits ``[rows, vocab_size]`` as an array of that shape, float64.

    Raises:
        NumericalError: A row holds NaN or plus infinity, or has no token left.
    """
    greedy_token_ids(logits)  # names the row
    probs = np.empty(logits.shape, dtype=np.float64)
    for row, row_logits in enumerate(logits):
        probs[row] = token_law(row_logits, params, borrow=True)
    return probs


def greedy_token_ids(logits: Logits) -> Ids:
    """Return the most likely token of each row ``[rows, vocab_size]``, the lowest id on a tie.

    Raises:
        NumericalError: A row holds NaN or plus infinity, or has no token left.
    """
    best = np.empty(len(logits), dtype=np.intp)
    for row, row_logits in enumerate(logits):
        best[row], top = argmax(np.ascontiguousarray(row_logits, dtype=np.float32))
        if not math.isfinite(top):
            raise NumericalError(
                f"row {row} of the logits has {top} for its largest value (token {best[row]}), so nothing is emitted "
                "from it: the model's file may be damaged, its numbers out of range, or every token excluded"
            )
    return best


def greedy_choice(logits: Logits) -> tuple[int, float]:
    """Return the most likely token of one row ``[vocab_size]``, and its probability at temperature 1.

    Raises:
        NumericalError: It holds NaN or plus infinity, or has no token left.
    """
    row = np.ascontiguousarray(logits, dtype=np.float32)
    try:
        return likeliest(row)
    except ValueError:
        greedy_token_ids(row[np.newaxis])  # says what is wrong with the row
        raise
