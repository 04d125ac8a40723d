"""Tree drafters for the proofs."""

from collections.abc import Callable, Sequence

import numpy as np

from outrider.types import Coins, Probs, TreeDraft
from outrider.verification.exact import Law, Prefix, TreeDrafter

# Children of a node: their tokens, and the law they were drawn from or None.
Grow = Callable[[Probs, int, Coins], tuple[Sequence[int], Probs | None]]


def drawn(law: Probs, width: int, coins: Coins):
    """Draw up to ``width`` different tokens, one after the other from what is left of the law."""
    weights, token_ids = law.copy(), []
    while len(token_ids) < width and weights.sum() > 0:
        token_ids.append(coins.draw(weights))
        weights[token_ids[-1]] = 0
    return token_ids, law


def drawn_again(law: Probs, width: int, coins: Coins):
    """Draw ``width`` tokens independently."""
    return [coins.draw(law) for _ in range(width)], law


def likeliest(law: Probs, width: int, _coins: Coins):
    return sorted(range(len(law)), key=lambda token_id: -law[token_id])[:width], None


def tree_drafter(law: Law, *levels: tuple[Grow, int]) -> TreeDrafter:
    """Return a drafter that grows each node of a level alike: ``(how, how many)`` for each level."""

    def propose(prefix: Prefix, coins: Coins) -> TreeDraft:
        token_ids, parents, probs = [], [], [None]
        level = [(-1, prefix)]
        for grow, width in levels:
            grown = []
            for node, path in level:
                children, probs[node + 1] = grow(law(path), width, coins)
                for token_id in children:
                    grown.append((len(token_ids), (*path, token_id)))
                    token_ids.append(token_id)
                    parents.append(node)
                    probs.append(None)
            level = grown
        return TreeDraft(tuple(token_ids), tuple(parents), tuple(probs))

    return propose


def scored(target: Law, draft: TreeDraft, prefix: Prefix = ()) -> Probs:
    """Return the target's law after the context and after each node."""
    paths = [prefix]
    for token_id, parent in zip(draft.token_ids, draft.parents, strict=True):
        paths.append((*paths[parent + 1], token_id))
    return np.array([target(path) for path in paths])
