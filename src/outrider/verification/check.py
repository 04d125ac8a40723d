"""What every verification rule asks of its arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from outrider.errors import NumericalError, UsageError
from outrider.types import Draft, Probs

# Far above the rounding of a float64 softmax over any vocabulary, far below a law that was not renormalised.
_SUM_TOLERANCE = 1e-9


def check_shapes(draft: Draft, target_probs: Probs) -> None:
    """Check that laws and token ids fit each other; a few comparisons, whatever the vocabulary.

    Raises:
        UsageError: Shapes or dtypes that do not fit, or a draft token outside the target's vocabulary.
    """
    if target_probs.ndim != 2 or target_probs.shape[0] != len(draft) + 1:
        raise UsageError(
            f"target_probs has shape {target_probs.shape}; a draft of {len(draft)} tokens needs ({len(draft) + 1}, "
            "vocab_size): one law for each draft token and one for the token after them"
        )
    vocab_size = target_probs.shape[1]
    for position, token_id in enumerate(draft.token_ids):
        if not 0 <= token_id < vocab_size:
            raise UsageError(
                f"draft token {position} is {token_id}; the target's vocabulary has ids 0 to {vocab_size - 1}"
            )
    if draft.probs is not None and draft.probs.shape != (len(draft), vocab_size):
        raise UsageError(
            f"draft_probs has shape {draft.probs.shape}; expected {(len(draft), vocab_size)}: "
            "pad a smaller draft vocabulary with zeros"
        )
    for name, probs in (("target_probs", target_probs), ("draft_probs", draft.probs)):
        if probs is not None and probs.dtype not in (np.float64, np.object_):
            raise UsageError(
                f"{name} is {probs.dtype}; it must be float64, normalised in float64: a law that was rounded after "
                "its token was drawn is not the law the token was drawn from"
            )


def check_law(probs: Probs, name: str, row: int) -> None:
    """Check that one row ``[vocab_size]`` is normalised.

    Raises:
        NumericalError: It holds NaN.
        UsageError: It does not sum to one, as a law that was masked and not renormalised does.
    """
    total: Any = probs.sum()
    if total != total:  # noqa: PLR0124 - NaN, without a function that fractions lack
        raise NumericalError(f"{name} row {row} holds NaN; nothing is emitted from it")
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise UsageError(f"{name} row {row} sums to {total}; a law sums to 1: renormalise after masking or truncating")
