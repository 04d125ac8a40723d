"""The tree that is chosen is the best of all trees, by brute force."""

from itertools import product

import pytest

from outrider.drafters.tree_shape import best_tree, expected_accepted

RANKS = [(0.9,), (0.8, 0.1), (0.5, 0.3, 0.2), (0.35, 0.33, 0.31), (0.2, 0.5, 0.1), (1.0, 0.0), (0.0, 0.0)]


def trees(num_tokens):
    """Every tree: each token's parent is the context or a token before it."""
    for size in range(num_tokens + 1):
        yield from product(*(range(-1, node) for node in range(size)))


def depth_of(parents):
    depths = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths, default=0)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("num_tokens", [0, 1, 3, 6])
@pytest.mark.parametrize("depth", [0, 1, 2, 3, 9])
def test_no_tree_is_worth_more(ranks, num_tokens, depth):
    best = max(
        expected_accepted(parents, ranks)
        for parents in trees(num_tokens)
        if depth_of(parents) <= depth and all(parents.count(one) <= len(ranks) for one in parents)
    )
    found = best_tree(ranks, num_tokens, depth)
    assert expected_accepted(found, ranks) == pytest.approx(best)
    assert len(found) <= num_tokens
    assert depth_of(found) <= depth


def test_a_tree_comes_level_by_level_and_wastes_no_token():
    assert best_tree((0.9,), 4, 9) == (-1, 0, 1, 2)
    assert best_tree((0.6, 0.4), 3, 1) == (-1, -1)
    assert best_tree((0.6, 0.3), 5, 2) == (-1, -1, 0, 0, 1)
    assert best_tree((0.5, 0.0), 3, 2) == (-1, 0)
    found = best_tree((0.8, 0.1, 0.05), 16, 6)
    assert list(found) == sorted(found)
    assert len(found) == 16


def test_worth_of_the_published_chain():
    """A chain of 5 at 0.8: the sum of the powers."""
    assert expected_accepted(range(-1, 4), (0.8,)) == pytest.approx(sum(0.8**n for n in range(1, 6)))


def test_the_largest_tree_that_may_be_asked_for_is_found_at_once():
    assert len(best_tree((0.7, 0.15, 0.06, 0.03), 64, 12)) == 64
