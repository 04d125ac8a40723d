"""Verification of trees: several candidates for each token, checked in one pass of the target.

The walk starts at the last committed token. At each node the target's law there is held against the node's children;
if one is accepted the walk goes on from it, otherwise a recovered token is emitted and the walk ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from outrider.errors import UsageError
from outrider.types import Coins, Outcome, TargetIds, TargetProbs, TreeDraft, TreeResult, Weights
from outrider.verification.check import check_drawn, check_law, check_shape, check_target, check_tree
from outrider.verification.law import normalised, without
from outrider.verification.token import residual


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
    check_target(draft.token_ids, target_probs)

    def choose(row: int, nodes: Sequence[int]) -> tuple[int | None, int]:
        target, drafted = target_probs[row], draft.probs[row]
        check_law(target, "target_probs", row)
        if drafted is None or not nodes:
            return _child(draft, nodes, coins.draw(target))
        check_shape(drafted, f"draft_probs of row {row}", target.shape)
        check_law(drafted, "draft_probs", row)
        accepted, left = verify_siblings([draft.token_ids[node] for node in nodes], drafted, target, coins)
        return (None, coins.draw(left)) if accepted is None else (nodes[accepted], draft.token_ids[nodes[accepted]])

    return _walk(draft, choose)


def verify_tree_greedy(draft: TreeDraft, target_ids: TargetIds) -> TreeResult:
    """Walk down a tree for as long as a child is the target's choice: all that a rule is on a greedy target.

    Args:
        draft: Any; ``probs`` is not looked at.
        target_ids: ``len(draft) + 1`` ids, the target's choice after the context and after each node.

    Raises:
        UsageError: Another number of target ids, or a tree that is none.
    """
    if len(target_ids) != len(draft) + 1:
        raise UsageError(f"{len(target_ids)} target ids; a tree of {len(draft)} nodes needs {len(draft) + 1}")
    return _walk(draft, lambda row, nodes: _child(draft, nodes, int(target_ids[row])))


def _walk(draft: TreeDraft, choose: Callable[[int, Sequence[int]], tuple[int | None, int]]) -> TreeResult:
    """Go from child to child as ``choose`` says: given a row and the nodes below it, which one or None, and a token."""
    children = _children(draft)
    row = 0
    path: list[int] = []
    while True:
        node, token_id = choose(row, children[row])
        if node is None:
            return TreeResult(tuple(path), token_id, Outcome.RECOVERED if children[row] else Outcome.BONUS)
        path.append(node)
        row = node + 1


def _child(draft: TreeDraft, nodes: Sequence[int], token_id: int) -> tuple[int | None, int]:
    """Return the first of these nodes that has a token, or None; and the token."""
    return next((node for node in nodes if draft.token_ids[node] == token_id), None), token_id


def verify_siblings(
    token_ids: Sequence[int], drafted: Weights, target: Weights, coins: Coins, *, with_replacement: bool = False
) -> tuple[int | None, Weights]:
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
        target = normalised(residual(target, drafted))
        if not with_replacement:
            drafted = without(drafted, token_id)
    return None, target


def _children(draft: TreeDraft) -> list[list[int]]:
    """Return the children of the context, then of each node, in order."""
    check_tree(draft)
    children: list[list[int]] = [[] for _ in range(len(draft) + 1)]
    for node, parent in enumerate(draft.parents):
        children[parent + 1].append(node)
    return children
