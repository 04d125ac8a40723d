"""Predicted acceptance, against published values and against the rules by enumeration."""

from fractions import Fraction

import numpy as np
import pytest

from outrider.audit.acceptance import _any_sibling, _chain, _overlap, _race
from outrider.audit.toy_laws import PAIRS
from outrider.types import Draft, TreeDraft
from outrider.verification import verify_block, verify_token
from outrider.verification.exact import dense_drafter, outcomes

LAWS = {
    "A": ([1 / 3, 2 / 3], [2 / 3, 1 / 3], 2 / 3, 2 / 3),
    "B": ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], 0.7, 41 / 65),
    "C": ([0.6, 0.3, 0.1], [0.1, 0.3, 0.6], 0.5, 2 / 5),
    "E": ([0.7, 0.3], [0.5, 0.5], 0.8, 4 / 5),
}


@pytest.mark.parametrize("name", LAWS)
def test_overlap_and_race_are_the_published_ones(name):
    target, drafted, overlap, race = LAWS[name]
    assert _overlap(np.array(target), np.array(drafted)) == pytest.approx(overlap)
    assert _race(np.array(target), np.array(drafted)) == pytest.approx(race)


def test_race_with_tokens_that_only_one_side_has():
    """By the formula, term by term."""
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.0, 0.4, 0.2, 0.4])
    wanted = sum(1 / sum(max(p[j] / p[i], q[j] / q[i]) for j in range(4)) for i in range(4) if p[i] > 0 and q[i] > 0)
    assert _race(p, q) == pytest.approx(wanted)


class ToyLaws:
    def __init__(self, law):
        self.law = law

    def probs(self, path):
        return np.array([float(share) for share in self.law(path)])

    def stretch(self, path, token_id):
        return 0.0, self.probs(path)[token_id]


@pytest.mark.parametrize(("method", "rule"), [("token", verify_token), ("block", verify_block)])
@pytest.mark.parametrize("pair", ["unlike", "four tokens", "draft of two tokens only"])
def test_chains_are_accepted_as_often_as_predicted(method, rule, pair):
    """Over all random decisions, the chances sum to how often a draft is accepted to each depth."""
    target, draft = PAIRS[pair]
    drafter, laws = dense_drafter(draft, 2), ToyLaws(target)

    def experiment(coins):
        proposed = drafter((), coins)
        probs = np.array([target(proposed.token_ids[:row]) for row in range(3)])
        return proposed.token_ids, rule(proposed, probs, coins).num_accepted

    seen, predicted = np.zeros(3), np.zeros(3)
    for (token_ids, num_accepted), share in outcomes(experiment).items():
        told = np.array([[float(one) for one in draft(token_ids[:row])] for row in range(2)])
        for depth, was_accepted, chance in _chain(Draft(token_ids, told), num_accepted, method, laws):
            seen[depth] += float(share) * was_accepted
            predicted[depth] += float(share) * chance
    np.testing.assert_allclose(seen, predicted, atol=1e-12)


def test_one_of_two_candidates_is_accepted_as_published():
    """Example D of the multi-draft literature: 107/140 for two drawn without replacement."""
    target, drafted = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    total = 0.0
    for first in range(4):
        for second in {0, 1, 2, 3} - {first}:
            share = drafted[first] * drafted[second] / (1 - drafted[first])
            tree = TreeDraft((first, second), (-1, -1), (drafted, None, None))
            total += share * _any_sibling(tree, target, "multi_draft")
    assert total == pytest.approx(float(Fraction(107, 140)))
    chosen = TreeDraft((0, 2), (-1, -1), (None, None, None))
    assert _any_sibling(chosen, target, "point_mass") == pytest.approx(0.6)
    assert _any_sibling(TreeDraft((0,), (-1,), (drafted, None)), target, "coupled") is None
