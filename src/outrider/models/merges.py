"""The merges of a BPE vocabulary: those of a file, checked, or those that SentencePiece's scores imply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.models.fields import Fields, shown
from outrider.models.tokenizer import TokenKind


def checked_merges(merges: Iterable[Any], vocabulary: Mapping[str, int], source: Fields) -> list[tuple[str, str]]:
    """Return merges as pairs.

    Args:
        merges: Each two pieces, as a pair or as one string with a space between them.
        vocabulary: Ids of pieces.
        source: The file, for messages.

    Raises:
        ModelFileError: One does not join two tokens to a third, which the tokenizers library may not survive.
    """
    pairs: list[Any] = [
        tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) if isinstance(merge, list) else (merge,)
        for merge in merges
    ]
    for pair in pairs:
        try:
            left, right = pair
            known = left in vocabulary and right in vocabulary and left + right in vocabulary
        except (TypeError, ValueError):  # not two, or no strings
            known = False
        if not known:
            raise source.error(f"merge {shown(pair)} does not join two tokens to a third; convert the model anew")
    return pairs


def merges_from_scores(
    pieces: Sequence[str], kinds: NDArray[np.integer[Any]], scores: NDArray[np.number[Any]]
) -> list[tuple[str, str]]:
    """Return the merges that give what SentencePiece's BPE gives.

    SentencePiece always joins the two neighbours whose union is the piece of the highest score. So every way to cut a
    piece in two pieces is a merge, and merges rank by the score of the whole. Only normal pieces take part: the
    spelling of a control token in a text must not add up to that token.

    Args:
        pieces: ``[vocab_size]``.
        kinds: ``[vocab_size]``, of :class:`~outrider.models.tokenizer.TokenKind`.
        scores: ``[vocab_size]``, finite.
    """
    best_first = np.argsort(-scores.astype(np.float64), kind="stable")
    ranked = [pieces[i] for i in best_first[kinds[best_first] == TokenKind.NORMAL].tolist()]
    normal = frozenset(ranked)
    return [
        (piece[:cut], piece[cut:])
        for piece in ranked
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
