"""Whether a draft keeps the contract. Drafters may be anybody's code, so that a draft may be anything."""

from __future__ import annotations

from dataclasses import replace
from operator import index

from outrider.drafters.base import DraftRequest
from outrider.errors import UsageError
from outrider.types import Draft, Proposal, TreeDraft
from outrider.verification.check import check_laws, check_tree

_MOST_PASSES = 1000


def checked(draft: Proposal, request: DraftRequest, vocab_size: int, *, reads_laws: bool) -> Proposal:
    """Return a draft that keeps the contract, its ids as Python's integers.

    Args:
        draft: What a drafter proposed.
        request: To what.
        vocab_size: Of the target.
        reads_laws: Whether the laws that its tokens were drawn from are to be checked, too, which takes time.

    Raises:
        UsageError: It does not.
        Exception: It is not a draft at all.
    """
    if not isinstance(draft, Draft | TreeDraft):
        raise UsageError(f"it proposed a {type(draft).__name__}, which is no draft")
    draft = replace(draft, token_ids=tuple(map(index, draft.token_ids)))
    if isinstance(draft, TreeDraft):
        draft = replace(draft, parents=tuple(map(index, draft.parents)))
        check_tree(draft)
    limit = request.max_tree_tokens if isinstance(draft, TreeDraft) else request.max_tokens
    is_known = all(0 <= token_id < vocab_size for token_id in draft.token_ids)
    if len(draft) > limit or draft.depth > request.max_tokens or not is_known:
        raise UsageError(
            f"it proposed {draft.token_ids}; it may propose at most {limit} tokens, {request.max_tokens} after one "
            f"another, with ids from 0 to {vocab_size - 1}"
        )
    for labels in (draft.sources, draft.confidences if isinstance(draft, Draft) else ()):
        if len(labels) not in (0, len(draft)):
            raise UsageError(f"it labelled {len(labels)} tokens of {len(draft)}; label all or none")
    if isinstance(draft, Draft) and draft.num_passes is not None and not 0 <= index(draft.num_passes) < _MOST_PASSES:
        raise UsageError(f"it says that it took {draft.num_passes} passes; it may say from 0 to {_MOST_PASSES - 1}")
    if reads_laws:
        check_laws(draft, vocab_size)
    return draft
