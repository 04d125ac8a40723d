"""Verification of trees: several candidates for each token, checked in one pass of the target.

The walk starts at the last committed token. At each node the target's law there is held against the node's children;
if one is accepted the walk goes on from it, otherwise a recovered token is emitted and the walk ends.

Rows are numbered like this everywhere: row 0 is the law after the context, row ``i + 1`` the law after node ``i``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.errors import UsageError
from outrider.types import Coins, Outcome, Probs, TargetProbs
from outrider.verification.check import check_drawn, check_law, check_shape, check_target
from outrider.verification.token import residual


@dataclass(frozen=True, slots=True)
class TreeDraft:
    """Draft tokens that branch.

    Attributes:
        token_ids: One per node, every node after its parent, siblings in the order in which they were drawn.
        parents: For each node its parent's number, -1 for a candidate for the next token.
        probs: ``len(token_ids) + 1`` rows: the law ``[vocab_size]`` that the children of the context, or of node
            ``i``, were drawn from, one after the other and *without replacement*: the second from what is left of the
            law without the first. ``None`` for a row whose children were chosen without drawing (most likely tokens,
            n-grams, a tree pruned by what its tokens are), or that has no children.
    """

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    probs: tuple[Probs | None, ...]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class TreeResult:
    """What the target's law made of a tree.

    Attributes:
        path: The nodes accepted, from the top.
        next_token_id: The token emitted after them.
        outcome: Whether that token is recovered, in place of a node's children, or a bonus below a leaf.
    """

    path: tuple[int, ...]
    next_token_id: int
    outcome: Outcome


def verify_tree(draft: TreeDraft, target_probs: TargetProbs, coins: Coins) -> TreeResult:
    """Walk down a tree for as long as the target accepts a child.

    Where children were chosen without drawing, a token is drawn from the target's law and the walk goes to the child
    that has it: right for any set of children. Where they were drawn, see :func:`verify_siblings`.

    Args:
        draft: Nodes, and the laws of those that were drawn.
        target_probs: ``[len(draft) + 1, vocab_size]``, the target's law after the context and after each node.
        coins: Independent of the decisions that drew the draft; shared with them is right too if nothing was drawn.

    Raises:
        UsageError: Arguments that do not fit, or a draft that is not honest about its laws.
        NumericalError: NaN where a probability is needed.
    """
    children = _children(draft)
    check_target(draft.token_ids, target_probs)
    row = 0
    path: list[int] = []
    while True:
        target, drafted, nodes = target_probs[row], draft.probs[row], children[row]
        check_law(target, "target_probs", row)
        if drafted is None or not nodes:
            token_id = coins.draw(target)
            node = next((node for node in nodes if draft.token_ids[node] == token_id), None)
        else:
            check_shape(drafted, f"draft_probs of row {row}", target.shape)
            check_law(drafted, "draft_probs", row)
            accepted, left = verify_siblings([draft.token_ids[node] for node in nodes], drafted, target, coins)
            node = None if accepted is None else nodes[accepted]
            token_id = coins.draw(left) if node is None else draft.token_ids[node]
        if node is None:
            return TreeResult(tuple(path), token_id, Outcome.RECOVERED if nodes else Outcome.BONUS)
        path.append(node)
        row = node + 1


def verify_siblings(
    token_ids: Sequence[int], drafted: Probs, target: Probs, coins: Coins, *, with_replacement: bool = False
) -> tuple[int | None, Probs]:
    """Hold candidates for one token against the target's law, in the order in which they were drawn.

    Recursive rejection: the first is accepted as by the token rule; if it is not, the residual takes the place of the
    target's law for the second, and so on. Without replacement (2402.14160, 2402.12374) each candidate's own law is
    the drafter's without those before it, renormalised, and may include every token; with replacement (2305.09781)
    it is the same law each time.

    Args:
        token_ids: The candidates.
        drafted: ``[vocab_size]``, the law that the first was drawn from.
        target: ``[vocab_size]``, the target's law.
        coins: Independent of the decisions that drew the candidates.
        with_replacement: How they were drawn.

    Returns:
        The number of the accepted candidate, or None; and, for None, the law to recover from.

    Raises:
        UsageError: A candidate that cannot have been drawn.
    """
    for number, token_id in enumerate(token_ids):
        check_drawn(drafted, token_id, number)
        if coins.accept(target[token_id], drafted[token_id]):
            return number, target
        left = residual(target, drafted)
        target = left / left.sum()
        if not with_replacement:
            drafted = _without(drafted, token_id)
    return None, target


def _without(probs: Probs, token_id: int) -> Probs:
    """Return the law of another token than this one; all zero if there is none."""
    rest: Probs = probs.copy()
    rest[token_id] = 0
    total = rest.sum()
    if total > 0:
        rest /= total
    return rest


def _children(draft: TreeDraft) -> list[list[int]]:
    """Return the children of the context, then of each node, in order.

    Raises:
        UsageError: The numbers of nodes, parents and laws do not fit, or a node comes before its parent.
    """
    if not len(draft.parents) == len(draft.probs) - 1 == len(draft):
        raise UsageError(
            f"a tree of {len(draft)} nodes has {len(draft.parents)} parents and {len(draft.probs)} rows of laws; it "
            f"needs {len(draft)} and {len(draft) + 1}"
        )
    children: list[list[int]] = [[] for _ in range(len(draft) + 1)]
    for node, parent in enumerate(draft.parents):
        if not -1 <= parent < node:
            raise UsageError(f"node {node} has parent {parent}; a parent is -1 or a node before its child")
        children[parent + 1].append(node)
    return children
