"""Prompt lookup: what followed the last tokens when they occurred before is likely to follow again.

Costs a few dictionary look-ups a round, whatever the length of the context and the size of the vocabulary, and no
model. Knows nothing of text: it sees token ids only. The method is Saxena's prompt lookup decoding (2023).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from outrider.drafters.base import DraftRequest
from outrider.errors import UsageError
from outrider.types import Draft, Verdict


class NgramDrafter:
    """Proposes the continuation of the longest n-gram that ends the context and occurred in it before.

    Among occurrences of the same length the most recent wins. A longer match is better evidence, so the draft holds at
    most ``tokens_per_match * n`` tokens after a match of ``n``. The draft is a choice, not a sample: its law is the
    point mass.

    The defaults come from a replay on answers of Qwen2.5-Coder 1.5B to 25 prompts of all kinds, with each draft token
    at 3 % of a pass: 1.70 times plain decoding's speed, 1.63 times with ``min_n=2``, 1.54 times with ``min_n=3``.

    Args:
        min_n: The shortest match that is worth a draft.
        max_n: The longest match that is looked for.
        tokens_per_match: How many draft tokens each matched token vouches for.
    """

    name = "ngram"

    def __init__(self, *, min_n: int = 1, max_n: int = 5, tokens_per_match: int = 2) -> None:
        if not 1 <= min_n <= max_n:
            raise UsageError(f"min_n is {min_n} and max_n {max_n}; they must satisfy 1 <= min_n <= max_n")
        if tokens_per_match < 1:
            raise UsageError(f"tokens_per_match is {tokens_per_match}; it must be at least 1")
        self._min_n = min_n
        self._max_n = max_n
        self._tokens_per_match = tokens_per_match
        self._indexes: dict[Hashable, _Index] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See :meth:`outrider.drafters.base.Drafter.propose`."""
        return [self._propose_one(request) for request in requests]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """Nothing to learn: the next context says it all."""

    def release(self, request_id: Hashable) -> None:
        """Forget the index of a request."""
        self._indexes.pop(request_id, None)

    def _propose_one(self, request: DraftRequest) -> Draft:
        context = request.context_ids
        index = self._indexes.setdefault(request.request_id, _Index(self._min_n, self._max_n))
        index.extend(context)
        match = index.longest_match(context)
        if match is None:
            return Draft(())
        n, start = match
        draft: list[int] = []
        for position in range(start, start + min(request.max_tokens, self._tokens_per_match * n)):
            # A match close to the end runs into the draft itself: the text is taken to repeat with that period.
            beyond = position - len(context)
            draft.append(context[position] if beyond < 0 else draft[beyond])
        return Draft(tuple(draft))


class _Index:
    """Where each n-gram of a growing context was last followed by a token."""

    def __init__(self, min_n: int, max_n: int) -> None:
        self._followers: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in range(min_n, max_n + 1)}
        self._num_indexed = 0  # positions before this one are in the index as followers

    def extend(self, context: Sequence[int]) -> None:
        for position in range(max(self._num_indexed, 1), len(context)):
            for n, followers in self._followers.items():
                if n > position:
                    break
                followers[tuple(context[position - n : position])] = position
        self._num_indexed = len(context)

    def longest_match(self, context: Sequence[int]) -> tuple[int, int] | None:
        """Return ``(n, position of the follower)`` of the longest match, or None."""
        for n in sorted(self._followers, reverse=True):
            follower = self._followers[n].get(tuple(context[-n:]))
            if follower is not None:
                return n, follower
        return None
