"""What every verification rule asks of its arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from outrider._core import Law
from outrider.errors import NumericalError, UsageError
from outrider.types import Draft, Proposal, TargetProbs, TreeDraft, Weights
from outrider.verification.law import as_array

# Far above the rounding of a float64 softmax over any vocabulary, far below a law that was not renormalised.
_SUM_TOLERANCE = 1e-9


def check_draft(draft: Draft, target_probs: TargetProbs) -> None:
    """Check that a draft and the target's laws fit each other; a few comparisons, whatever the vocabulary.

    Raises:
        UsageError: Shapes or dtypes that do not fit, or a draft token outside the target's vocabulary.
    """
    check_target(draft.token_ids, target_probs)
    _check_rows(draft, target_probs.shape[1])


def check_target(token_ids: Sequence[int], target_probs: TargetProbs) -> None:
    """Check that there is a target law for the context and for each draft token, and that it knows the tokens."""
    vocab_size = target_probs.shape[-1]
    check_shape(target_probs, "target_probs", (len(token_ids) + 1, vocab_size))
    for position, token_id in enumerate(token_ids):
        if not 0 <= token_id < vocab_size:
            raise UsageError(
                f"draft token {position} is {token_id}; the target's vocabulary has ids 0 to {vocab_size - 1}"
            )


def check_tree(draft: TreeDraft) -> None:
    """Check that the parts of a tree fit each other.

    Raises:
        UsageError: The numbers of nodes, parents and laws differ, or a node comes before its parent.
    """
    if not len(draft.parents) == len(draft.probs) - 1 == len(draft):
        raise UsageError(
            f"a tree of {len(draft)} nodes has {len(draft.parents)} parents and {len(draft.probs)} rows of laws; it "
            f"needs {len(draft)} and {len(draft) + 1}"
        )
    for node, parent in enumerate(draft.parents):
        if not -1 <= parent < node:
            raise UsageError(f"node {node} has parent {parent}; a parent is -1 or a node before its child")


def check_laws(draft: Proposal, vocab_size: int) -> None:
    """Check all that can be wrong with the laws of a draft.

    A rule checks each law when it gets to it, and by then has taken decisions that cannot be taken again. Whoever means
    to go on without a draft that is not honest finds out here, before.

    Raises:
        UsageError: A law has another shape or dtype, does not sum to 1, has an entry below zero, or excludes a token
            that was drawn from it; or siblings were drawn that are the same.
        NumericalError: It holds NaN.
    """
    laws: Iterable[Weights | None] = draft.probs if isinstance(draft, TreeDraft) else ()
    if isinstance(draft, Draft) and draft.probs is not None:
        _check_rows(draft, vocab_size)
        laws = draft.probs
    for row, law in enumerate(laws):
        if law is None:
            continue
        check_shape(law, f"draft_probs of row {row}", (vocab_size,))
        check_law(law, "draft_probs", row)
        if not isinstance(law, Law) and (least := as_array(law).min()) < 0:
            raise UsageError(f"draft_probs row {row} has the entry {least}; probabilities are at least zero")
        drawn = [draft.token_ids[node] for node, parent in enumerate(draft.parents) if parent == row - 1]
        for token_id in drawn:
            check_drawn(law, token_id, row)
        if len(set(drawn)) < len(drawn):
            raise UsageError(f"row {row} has the candidates {drawn}; drawn without replacement they all differ")


def _check_rows(draft: Draft, vocab_size: int) -> None:
    """Check that a chain has a law for each of its first tokens, which were drawn, and none for more than it has."""
    if draft.probs is not None:
        num_drawn = min([len(draft), *draft.probs.shape[:1]])
        check_shape(draft.probs, "draft_probs", (num_drawn, vocab_size))


def check_shape(probs: TargetProbs | Weights, name: str, shape: tuple[int, ...]) -> None:
    """Check the shape and the dtype of laws."""
    if probs.shape != shape:
        raise UsageError(
            f"{name} has shape {probs.shape}; expected {shape}: one law after each draft token and one before the "
            "first for the target, one for each drawn token for the draft, with zeros for ids that a model lacks"
        )
    if probs.dtype not in (np.float64, np.object_):
        raise UsageError(
            f"{name} is {probs.dtype}; it must be float64, normalised in float64: a law that was rounded after its "
            "token was drawn is not the law the token was drawn from"
        )


def check_law(probs: Weights, name: str, row: int) -> None:
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


def check_drawn(probs: Weights, token_id: int, position: int) -> None:
    """Check that the law ``[vocab_size]`` of a draft token allows that token.

    Raises:
        UsageError: It does not, so the token cannot have been drawn from it.
    """
    if not probs[token_id] > 0:
        raise UsageError(f"draft token {position} is {token_id}, to which its own law gives {probs[token_id]}")
