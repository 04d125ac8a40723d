"""The contract of everything that proposes draft tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outrider.sampling.shaper import LawShaper
from outrider.types import Coins, Draft, VerificationResult


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A wish for draft tokens for one sequence.

    Attributes:
        request_id: The same for every round of a sequence, so that a drafter can keep what it knows of it; and no other
            sequence's, whichever engine it is from, so that engines may share a drafter.
        context_ids: Prompt and output so far, the last committed token included. Grows from round to round; never
            modified in place by the drafter.
        max_tokens: Propose at most this many; fewer, or none, is always allowed.
        shaper: What the target's logits go through. A drafter does well to send its own through it, too, each row with
            the draft tokens before it, and to heed ``shaper.params``.
        coins: The sequence's own random decisions for drafting. Draw each token once and in order: they are either
            independent of those that verify, or shared with them position by position.
    """

    request_id: Hashable
    context_ids: Sequence[int]
    max_tokens: int
    shaper: LawShaper
    coins: Coins


@runtime_checkable
class Drafter(Protocol):
    """Proposes draft tokens; knows nothing of the target, the engine or verification.

    Whether a token is put up for verification may depend on everything but that token itself and what follows from
    it: a drafter may stop *after* a token because of that token, never drop it because of what it is.
    """

    @property
    def name(self) -> str:
        """Short name for people and for the result document, such as ``"ngram"`` or the draft model's name."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Return one draft per request, in order, each of at most ``max_tokens`` tokens."""

    def observe(self, request_id: Hashable, result: VerificationResult) -> None:
        """Learn what became of the last draft of a request. May be ignored."""

    def release(self, request_id: Hashable) -> None:
        """Forget a request that has ended. Unknown ids are ignored: a request may end before its first round."""
