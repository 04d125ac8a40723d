"""Which tree of draft tokens is worth most: the dynamic programme of Sequoia (2402.12374).

The only fact it needs is how often the candidate of each rank is the one that is accepted. Shapes do not depend on what
the tokens turn out to be, so they are right for tokens that were drawn, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache


def best_tree(acceptance_by_rank: Sequence[float], num_tokens: int, depth: int) -> tuple[int, ...]:
    """Return the tree of which the most tokens are accepted on average.

    Args:
        acceptance_by_rank: For each rank among siblings, the chance that the candidate of that rank is accepted, given
            that its parent was. They add up to at most 1; there are no siblings beyond.
        num_tokens: The most tokens of the tree, at least 0.
        depth: The most of them after one another, at least 0.

    Returns:
        For each token its parent's number, -1 for candidates for the next token; level by level, siblings by rank. It
        has fewer tokens than it may have where more are worth nothing.
    """

    @cache
    def best(tokens: int, levels: int, rank: int) -> tuple[float, int]:
        """Return what siblings from ``rank`` on and all below are worth, and how many tokens the first one takes."""
        if tokens == 0 or levels == 0 or rank == len(acceptance_by_rank):
            return 0.0, 0
        worth, taken = 0.0, 0
        for share in range(1, tokens + 1):
            below = best(share - 1, levels - 1, 0)[0]
            total = acceptance_by_rank[rank] * (1 + below) + best(tokens - share, levels, rank + 1)[0]
            if total > worth:
                worth, taken = total, share
        return worth, taken

    parents: list[int] = []
    level = [(-1, num_tokens)]  # nodes, and how many tokens there may be below each
    for levels in range(min(depth, num_tokens), 0, -1):
        below: list[tuple[int, int]] = []
        for parent, tokens in level:
            left = tokens
            for rank in range(len(acceptance_by_rank)):
                taken = best(left, levels, rank)[1]
                if taken == 0:
                    break
                below.append((len(parents), taken - 1))
                parents.append(parent)
                left -= taken
        level = below
    return tuple(parents)


def expected_accepted(parents: Sequence[int], acceptance_by_rank: Sequence[float]) -> float:
    """Return how many tokens of a tree are accepted on average, all siblings by rank."""
    total = 0.0
    chances: list[float] = []
    for node, parent in enumerate(parents):
        rank = sum(earlier == parent for earlier in parents[:node])
        chances.append((1.0 if parent < 0 else chances[parent]) * acceptance_by_rank[rank])
        total += chances[-1]
    return total
