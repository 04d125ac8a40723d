"""The contract of everything that proposes draft tokens."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from outrider.sampling.shaper import LawShaper
from outrider.types import DraftCoins, Proposal, Verdict


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A wish for draft tokens for one sequence.

    Attributes:
        request_id: The same for every round of a sequence, so that a drafter can keep what it knows of it; and no other
            sequence's, whichever engine it is from, so that engines may share a drafter.
        context_ids: Prompt and output so far, the last committed token included. Grows from round to round; never
            modified in place by the drafter.
        max_tokens: Propose at most this many after one another; fewer, or none, is always allowed.
        shaper: What the target's logits go through. A drafter does well to send its own through it, too, each row with
            the draft tokens before it, and to heed ``shaper.params``.
        coins: The sequence's own random decisions for drafting. Draw each token once and in order: they are either
            independent of those that verify, or shared with them position by position. For a tree, see
            :meth:`~outrider.types.DraftCoins.at_depth`.
        max_tree_tokens: Of a draft that branches, propose at most this many in all, and at most ``max_tokens`` after
            one another.
        prediction_ids: Text that the caller expects the output to resemble; empty if there is none. A drafter may
            make use of it. The same in every round.
        draft_ids: What another drafter has proposed in this round after the context: propose what may follow it. It
            may not come true. A drafter may decline, by an empty draft.
        max_read_tokens: Others wait for this round: of contexts that have not been read, read this many tokens at most,
            for all requests together. Where that is not enough propose nothing yet, by an empty draft that
            ``is_reading``. None for no limit.
        drafter: Of several drafters that work together ask this one only, by its name; None for any.
        num_remaining: How many tokens may still follow the context, at most; None if that is not known.
        num_other_rows: What the target's pass computes in this round for sequences that are not asked for.
        least_chances: A draft token costs time: propose no token after ``i`` others unless the chance that all of
            those are accepted is at least ``least_chances[i]``. Empty if every token is welcome. Advice only.
    """

    request_id: Hashable
    context_ids: Sequence[int]
    max_tokens: int
    shaper: LawShaper
    coins: DraftCoins
    max_tree_tokens: int = 0
    prediction_ids: Sequence[int] = ()
    draft_ids: Sequence[int] = ()
    max_read_tokens: int | None = None
    drafter: str | None = None
    num_remaining: int | None = None
    num_other_rows: int = 0
    least_chances: Sequence[float] = ()


@runtime_checkable
class Drafter(Protocol):
    """Proposes draft tokens; knows nothing of the target, the engine or verification.

    Whether a token is put up for verification may depend on everything but that token itself and what follows from
    it: a drafter may stop *after* a token because of that token, never drop it because of what it is. Nor may what was
    drawn decide whether a draft is a chain or a tree, or whether it tells laws: each has a rule of its own. Tokens that
    are told without laws, such as what follows drawn ones, are free of that: they are choices.

    Whatever a drafter raises, and a draft that breaks this contract, costs the request its drafts from then on: the
    answer goes on without them, and its account says so.
    """

    @property
    def name(self) -> str:
        """Short name for people and for the result document, such as ``"ngram"`` or the draft model's name."""

    def propose(self, requests: Sequence[DraftRequest]) -> Sequence[Proposal]:
        """Return one draft per request, in order: a chain, or a tree of several candidates for a place.

        Must bear to be asked again for a context that has not grown: when one request of several makes it fail, each
        is asked for by itself.
        """

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Learn what became of the last draft of a request, if it had any token. May be ignored.

        ``result.path`` holds the numbers of the draft tokens accepted, of a chain or of a tree, and
        ``result.next_token_id`` the token that followed them. An answer may have ended before all of them.
        """

    def release(self, request_id: Hashable) -> None:
        """Forget a request that has ended. Unknown ids are ignored: a request may end before its first round."""


@runtime_checkable
class KeepsContexts(Protocol):
    """A drafter that can keep what it has read, for requests that begin alike, such as the next turn of a chat."""

    def keep_contexts(self, max_tokens: int, grain: int = 1) -> None:
        """Keep the contexts of requests that end from now on, those of before no more.

        Args:
            max_tokens: All caches of a model together hold at most so many tokens, those of open requests included;
                what was used longest ago goes first. 0 keeps none.
            grain: Caches grow by so many tokens.
        """

    def num_held(self, context_ids: Sequence[int]) -> int:
        """Return how many tokens at the beginning of a new request's context need not be read."""
