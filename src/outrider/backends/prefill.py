"""Feeding long prompts."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.backends.base import Backend, Rows

# A pass cannot be interrupted, so a long prompt goes in pieces: a key pressed is heard between two of them.
PIECE = 256


def feed_all_but_last_piece(backend: Backend, sequence_id: int, token_ids: Sequence[int]) -> Sequence[int]:
    """Feed a long prompt in pieces, without logits, and return the rest: at least one token, at most ``PIECE``."""
    while len(token_ids) > PIECE:
        backend.forward([Rows(sequence_id, token_ids[:PIECE], num_logits=0)])
        token_ids = token_ids[PIECE:]
    return token_ids
