"""Trees: proven as chains are; acceptance as published; wrong variants told apart."""

from fractions import Fraction
from functools import partial
from itertools import chain, combinations

import numpy as np
import pytest
from sibling_mutants import MUTANTS, siblings
from trees import drawn, drawn_again, likeliest, scored, tree_drafter

from outrider.audit.toy_laws import DRAFT_D, PAIRS, TARGET_D, fixed, hashed, row
from outrider.errors import NumericalError, UsageError
from outrider.types import Draft, Outcome, TreeDraft, TreeResult
from outrider.verification import verify_point_mass, verify_token, verify_tree
from outrider.verification.coins import accept_at, draw_at
from outrider.verification.exact import emitted_law, outcomes, sequence_law, total_variation, tree_round
from outrider.verification.tree import verify_siblings

SHAPES = {
    "one drawn child": [(drawn, 1)],
    "a drawn chain": [(drawn, 1), (drawn, 1)],
    "two drawn children": [(drawn, 2)],
    "every token drawn": [(drawn, 4)],
    "a drawn tree": [(drawn, 2), (drawn, 2)],
    "two likeliest children": [(likeliest, 2)],
    "a tree of the likeliest": [(likeliest, 2), (likeliest, 2)],
    "drawn, then the likeliest": [(drawn, 2), (likeliest, 1)],
    "the likeliest, then drawn": [(likeliest, 2), (drawn, 2)],
}


def is_exact(target, drafter, num_tokens):
    return emitted_law(tree_round(target, drafter, verify_tree), num_tokens) == sequence_law(target, num_tokens)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", PAIRS)
def test_walk_emits_the_targets_law(name, shape):
    target, draft = PAIRS[name]
    levels = SHAPES[shape]
    if len(levels) == 2 and levels[0] == (drawn, 2) and len(target(())) > 3:
        levels = [levels[0], (levels[1][0], 1)]  # a smaller tree, for time
    assert is_exact(target, tree_drafter(draft, *levels), len(levels) + 1 if len(target(())) == 3 else 2)


def test_walk_emits_the_targets_law_below_a_tree_that_is_three_levels_deep():
    target, draft = PAIRS["unlike"]
    assert is_exact(target, tree_drafter(draft, (likeliest, 2), (drawn, 1), (likeliest, 2)), 4)


def test_trees_pruned_by_what_their_tokens_are_must_not_tell_laws_and_are_right_without():
    target, draft = PAIRS["unlike"]

    def pruned(law, width, coins):
        token_ids, _law = drawn(law, width, coins)
        return [token_id for token_id in token_ids if law[token_id] > Fraction(1, 4)], None

    assert is_exact(target, tree_drafter(draft, (pruned, 3), (pruned, 1)), 3)


@pytest.mark.parametrize("with_replacement", [True, False])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("width", [1, 2, 3])
def test_siblings_emit_the_targets_law(name, width, with_replacement):
    target, draft = PAIRS[name][0](()), PAIRS[name][1](())
    law, _accepted = sibling_law(target, draft, width, with_replacement=with_replacement)
    assert law == {token_id: share for token_id, share in enumerate(target) if share > 0}


def test_chain_is_verified_as_by_the_chain_rules():
    target, draft = PAIRS["unlike"]
    token_ids = (1, 2)
    laws = np.array([draft(()), draft((1,))])
    probs = np.array([target(()), target((1,)), target((1, 2))])
    for rule, chain_probs, tree_probs in [
        (verify_token, laws, (*laws, None)),
        (verify_point_mass, None, (None, None, None)),
    ]:
        tree = TreeDraft(token_ids, (-1, 0), tree_probs)
        by_tree = outcomes(lambda coins, tree=tree: verify_tree(tree, probs, coins))
        by_chain = outcomes(lambda coins, rule=rule, p=chain_probs: rule(Draft(token_ids, p), probs, coins))
        as_tree = {
            TreeResult(tuple(range(result.num_accepted)), result.next_token_id, result.outcome): probability
            for result, probability in by_chain.items()
        }
        assert by_tree == as_tree


# --- published acceptance of one position, as fractions


def emit_sibling(token_ids, drafted, target, coins, *, with_replacement):
    number, left = verify_siblings(token_ids, drafted, target, coins, with_replacement=with_replacement)
    return (coins.draw(left), False) if number is None else (token_ids[number], True)


def sibling_law(target, draft, width, *, with_replacement, rule=emit_sibling, grow=None):
    """Return the law of the emitted token, and the probability that it was a candidate."""
    grow = grow or (drawn_again if with_replacement else drawn)

    def experiment(coins):
        token_ids, _law = grow(draft, width, coins)
        return rule(token_ids, draft, target, coins, with_replacement=with_replacement)

    law, accepted = {}, Fraction(0)
    for (token_id, was_candidate), probability in outcomes(experiment).items():
        law[token_id] = law.get(token_id, 0) + probability
        accepted += probability if was_candidate else 0
    return law, accepted


EXAMPLES = {
    "A": (row(1, 2), row(2, 1)),
    "B": (row(5, 3, 2), row(2, 3, 5)),
    "D": (TARGET_D(()), DRAFT_D(())),
}


@pytest.mark.parametrize(
    ("example", "width", "with_replacement", "expected"),
    [
        ("A", 2, True, Fraction(7, 9)),
        ("A", 3, True, Fraction(23, 27)),
        ("B", 2, True, Fraction(19, 25)),
        ("B", 3, True, Fraction(101, 125)),
        ("D", 2, True, Fraction(18, 25)),
        ("D", 3, True, Fraction(96, 125)),
        ("A", 2, False, Fraction(1)),
        ("B", 2, False, Fraction(41, 50)),
        ("B", 3, False, Fraction(1)),
        ("D", 2, False, Fraction(107, 140)),
        ("D", 3, False, Fraction(14117, 16800)),
        ("D", 4, False, Fraction(1)),
    ],
)
def test_acceptance_of_recursive_rejection_is_the_published_one(example, width, with_replacement, expected):
    target, draft = EXAMPLES[example]
    law, accepted = sibling_law(target, draft, width, with_replacement=with_replacement)
    assert accepted == expected
    assert law == dict(enumerate(target))


def sets_of(draft, width, grow):
    """Return the probability of each set of candidates."""
    return outcomes(lambda coins: frozenset(grow(draft, width, coins)[0]))


def best_possible(target, draft, width, grow):
    """Return the optimum of the transport problem: the least over token sets H of p(H) + 1 - Pr(candidates in H)."""
    sets, tokens = sets_of(draft, width, grow), range(len(target))
    subsets = chain.from_iterable(combinations(tokens, size) for size in range(len(target) + 1))
    return min(
        sum((target[token_id] for token_id in subset), Fraction(1))
        - sum((share for drawn_set, share in sets.items() if drawn_set <= set(subset)), Fraction(0))
        for subset in subsets
    )


@pytest.mark.parametrize(
    ("example", "width", "grow", "expected"),
    [
        ("A", 2, drawn_again, Fraction(8, 9)),
        ("A", 3, drawn_again, Fraction(1)),
        ("B", 2, drawn_again, Fraction(43, 50)),
        ("B", 3, drawn_again, Fraction(247, 250)),
        ("D", 2, drawn_again, Fraction(79, 100)),
        ("D", 3, drawn_again, Fraction(871, 1000)),
        ("A", 2, drawn, Fraction(1)),
        ("B", 2, drawn, Fraction(69, 70)),
        ("D", 2, drawn, Fraction(701, 840)),
        ("D", 3, drawn, Fraction(1)),
    ],
)
def test_no_rule_accepts_more_than_the_published_optimum(example, width, grow, expected):
    target, draft = EXAMPLES[example]
    assert best_possible(target, draft, width, grow) == expected
    _law, accepted = sibling_law(target, draft, width, with_replacement=grow is drawn_again)
    assert accepted <= expected


@pytest.mark.parametrize(
    ("example", "width", "expected"),
    [("A", 2, 2 / 3), ("A", 3, 64 / 81), ("B", 2, 0.4830), ("B", 3, 0.6161), ("D", 2, 7 / 20), ("D", 3, 0.4646)],
)
def test_acceptance_without_laws_is_the_targets_weight_of_the_set(example, width, expected):
    """Drawn independently, then treated as chosen: the published "naive" column."""
    target, draft = EXAMPLES[example]

    def experiment(coins):
        token_ids, _law = drawn_again(draft, width, coins)
        tree = TreeDraft(tuple(token_ids), (-1,) * width, (None,) * (width + 1))
        return len(verify_tree(tree, np.array([target] * (width + 1)), coins).path)

    assert float(outcomes(experiment)[1]) == pytest.approx(expected, abs=5e-5)


def test_likeliest_candidates_are_accepted_with_the_targets_weight_of_them():
    target, draft = EXAMPLES["D"]
    drafter = tree_drafter(lambda _prefix: draft, (likeliest, 2))

    def experiment(coins):
        tree = drafter((), coins)
        return len(verify_tree(tree, scored(lambda _prefix: target, tree), coins).path)

    assert outcomes(experiment)[1] == Fraction(3, 10)


# --- wrong variants of the rule for siblings


def sibling_error(name, target, draft, width):
    rule, grow = MUTANTS[name]
    law, _accepted = sibling_law(target, draft, width, with_replacement=False, rule=rule, grow=grow)
    return total_variation(law, dict(enumerate(target)))


@pytest.mark.parametrize("name", MUTANTS)
def test_proof_detects(name):
    pairs = [*EXAMPLES.values(), (hashed(4, 5)(()), hashed(4, 26)(())), (row(1, 5, 2, 2), row(4, 2, 3, 1))]
    assert any(sibling_error(name, target, draft, 2) > 0 for target, draft in pairs)


def test_rebuilt_from_the_mutants_parts_the_rule_is_right():
    target, draft = EXAMPLES["D"]
    for width in (1, 2, 3, 4):
        law, _accepted = sibling_law(target, draft, width, with_replacement=False, rule=siblings())
        assert law == dict(enumerate(target))


def test_law_that_was_not_renormalised_errs_by_the_published_amount():
    name = "verifies against the law that was not renormalised"
    rule, grow = MUTANTS[name]
    law, _accepted = sibling_law(*EXAMPLES["D"], 2, with_replacement=False, rule=rule, grow=grow)
    assert law == {0: Fraction(699, 1960), 1: Fraction(673, 1960), 2: Fraction(1, 5), 3: Fraction(1, 10)}
    assert sibling_error(name, *EXAMPLES["D"], 2) == Fraction(17, 392)


# --- wrong variants of the walk


def walks_with_the_wrong_rows(row_of, draft, target_probs, coins):
    """The walk, but after a node the law of another row; right with ``row_of=lambda draft, node: node + 1``."""
    node, path = -1, []
    while True:
        children = [child for child, parent in enumerate(draft.parents) if parent == node]
        token_id = coins.draw(target_probs[0 if node < 0 else row_of(draft, node)])
        node = next((child for child in children if draft.token_ids[child] == token_id), None)
        if node is None:
            return TreeResult(tuple(path), token_id, Outcome.RECOVERED)
        path.append(node)


WALKS = {
    "reads the row of the node's parent": lambda draft, node: draft.parents[node] + 1,
    "reads the row of the node before": lambda draft, node: node,
    "reads the row of the first sibling": lambda draft, node: draft.parents.index(draft.parents[node]) + 1,
}


@pytest.mark.parametrize("name", WALKS)
def test_proof_detects_a_walk_that(name):
    target, draft = PAIRS["unlike"]
    drafter = tree_drafter(draft, (likeliest, 2), (likeliest, 2))
    right = tree_round(target, drafter, partial(walks_with_the_wrong_rows, lambda draft, node: node + 1))
    wrong = tree_round(target, drafter, partial(walks_with_the_wrong_rows, WALKS[name]))
    assert emitted_law(right, 3) == sequence_law(target, 3)
    assert total_variation(emitted_law(wrong, 3), sequence_law(target, 3)) > 0


# --- arguments and floating point


class ScriptedCoins:
    def __init__(self, *uniforms):
        self._uniforms = iter(uniforms)

    def accept(self, numerator, denominator):
        return accept_at(next(self._uniforms), numerator, denominator)

    def draw(self, weights):
        return draw_at(next(self._uniforms), weights)


LAW = np.array([0.25, 0.25, 0.5])
#      context -> 2 -> (0, 1), context -> 0
TREE = TreeDraft((2, 0, 0, 1), (-1, 0, -1, 0), (LAW, LAW, None, None, None))
TARGET = np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=np.float64)


@pytest.mark.parametrize(
    ("uniforms", "expected"),
    [
        ((0.4, 0.9, 0.5), TreeResult((0, 1), 0, Outcome.BONUS)),
        ((0.6, 0.6, 0.0), TreeResult((), 1, Outcome.RECOVERED)),
    ],
)
def test_walk_step_by_step(uniforms, expected):
    """Child 2 has ratio 1/2; the residual is all on token 1, so child 0 has no chance after it."""
    assert verify_tree(TREE, TARGET, ScriptedCoins(*uniforms)) == expected


def test_walk_goes_to_the_first_of_equal_children():
    tree = TreeDraft((1, 1, 0, 2), (-1, -1, 0, 1), (None,) * 5)
    probs = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]], dtype=np.float64)
    assert verify_tree(tree, probs, ScriptedCoins(0.5, 0.5, 0.5)) == TreeResult((0, 2), 2, Outcome.BONUS)


def test_empty_tree_is_a_plain_decoding_step():
    empty = TreeDraft((), (), (None,))
    assert verify_tree(empty, TARGET[:1], ScriptedCoins(0.5)) == TreeResult((), 1, Outcome.BONUS)


def test_arguments_are_left_as_they_were():
    """Sequoia and MCSD edit their laws in place."""
    law, target = LAW.copy(), TARGET.copy()
    for array in (law, target):
        array.setflags(write=False)
    tree = TreeDraft(TREE.token_ids, TREE.parents, (law, law, None, None, None))
    for uniforms in [(0.4, 0.9, 0.5), (0.6, 0.6, 0.0)]:
        verify_tree(tree, target, ScriptedCoins(*uniforms))
    assert (target == TARGET).all()


def test_last_token_of_a_law_can_be_drawn_and_rejected():
    number, left = verify_siblings([1], row(0, 1, 0), row(1, 0, 1), ScriptedCoins(Fraction(1, 2)))
    assert number is None
    assert left.tolist() == [Fraction(1, 2), 0, Fraction(1, 2)]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (TreeDraft((1, 2), (-1,), (None,) * 3), "has 1 parents and 3 rows of laws; it needs 2 and 3"),
        (TreeDraft((1, 2), (-1, 0), (None,) * 2), "has 2 parents and 2 rows of laws; it needs 2 and 3"),
        (TreeDraft((1, 2), (-1, 1), (None,) * 3), "node 1 has parent 1"),
        (TreeDraft((1, 2), (-2, 0), (None,) * 3), "node 0 has parent -2"),
        (TreeDraft((1, 3), (-1, 0), (None,) * 3), "draft token 1 is 3; the target's vocabulary has ids 0 to 2"),
        (TreeDraft((1,), (-1,), (None,) * 2), r"target_probs has shape \(3, 3\); expected \(2, 3\)"),
        (TreeDraft((1, 2), (-1, 0), (LAW[:2], None, None)), r"draft_probs of row 0 has shape \(2,\); expected \(3,\)"),
        (TreeDraft((1, 2), (-1, 0), (LAW.astype(np.float32), None, None)), "draft_probs of row 0 is float32"),
        (TreeDraft((1, 2), (-1, 0), (LAW / 2, None, None)), r"draft_probs row 0 sums to 0\.5"),
        (TreeDraft((1, 2), (-1, -1), (np.array([1.0, 0, 0]), None, None)), "draft token 0 is 1, to which its own law"),
    ],
)
def test_trees_that_do_not_fit_are_refused(tree, message):
    with pytest.raises(UsageError, match=message):
        verify_tree(tree, TARGET[:3], ScriptedCoins(0.9, 0.9, 0.9))


@pytest.mark.parametrize("in_draft", [True, False])
def test_nan_is_an_error_and_never_a_token(in_draft):
    law, target = LAW.copy(), TARGET.copy()
    (law if in_draft else target[0])[1] = float("nan")
    tree = TreeDraft(TREE.token_ids, TREE.parents, (law, None, None, None, None))
    with pytest.raises(NumericalError, match="row 0 holds NaN"):
        verify_tree(tree, target, ScriptedCoins(0.4, 0.9, 0.5))


def test_context_free_toy_of_a_whole_tree():
    """Two rounds of a two-level tree on the reversed toy, as one more joint law."""
    assert is_exact(TARGET_D, tree_drafter(fixed(1, 2, 3, 4), (drawn, 2), (likeliest, 1)), 2)
