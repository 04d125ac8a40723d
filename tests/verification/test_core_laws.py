"""Rules take the same decisions on the core's laws as on the arrays that the proofs run on, for the same coins."""

import numpy as np
import pytest

from outrider._core import Law
from outrider.types import Draft, TreeDraft
from outrider.verification import (
    CoinSource,
    Purpose,
    RaceCoins,
    block,
    token,
    verify_block,
    verify_point_mass,
    verify_token,
    verify_tree,
)
from outrider.verification.law import LawRows, as_law, difference, without

LIMITS = [({}, {}), ({"top_p": 0.8}, {}), ({}, {"top_k": 4}), ({"top_k": 6}, {"top_p": 0.9}), ({"min_p": 0.3}, {})]


def round_of(case, size=40, length=4):
    """Return laws of a target and a draft that resemble each other, and a draft drawn from the latter."""
    rng = np.random.default_rng(case)
    ours, theirs = LIMITS[case % len(LIMITS)]
    logits = (1.5 * rng.standard_normal((length + 1, size))).astype(np.float32)
    target = [Law.softmax(row, temperature=1.0, **ours) for row in logits]
    nearby = (logits[:length] + rng.standard_normal((length, size))).astype(np.float32)
    drafted = [Law.softmax(row, temperature=1.0, **theirs) for row in nearby]
    coins = CoinSource(case).at(0, Purpose.DRAFT)
    return target, drafted, tuple(coins.draw(law) for law in drafted)


def results(rule, case):
    """Return what a rule makes of a round on the core's laws, on arrays, and on one of each."""
    target, drafted, token_ids = round_of(case)
    size = len(target[0])
    targets = (LawRows(target, size), np.array([np.asarray(law) for law in target]))
    drafts = [Draft(token_ids, probs) for probs in (LawRows(drafted, size), np.asarray(LawRows(drafted, size)))]
    return [
        rule(draft, probs, CoinSource(case).at(0, Purpose.VERIFY))
        for probs, draft in ((targets[0], drafts[0]), (targets[1], drafts[1]), (targets[0], drafts[1]))
    ]


@pytest.mark.parametrize("rule", [verify_token, verify_block, verify_point_mass])
def test_chains_are_verified_alike(rule):
    found = [results(rule, case) for case in range(300)]
    assert all(one == other == third for one, other, third in found)
    assert {one.num_accepted for one, _, _ in found} >= {0, 1, 2}


def test_trees_are_verified_alike():
    accepted = set()
    for case in range(200):
        target, drafted, _ = round_of(case)
        coins, law, token_ids = CoinSource(case).at(0, Purpose.DRAFT), drafted[0], []
        for _ in range(3):
            token_ids.append(coins.draw(law))
            law = without(law, token_ids[-1])
        rows = [
            (LawRows(target[:4], len(law)), drafted[0]),
            (np.array([np.asarray(one) for one in target[:4]]), np.asarray(drafted[0])),
        ]
        one, other = (
            verify_tree(
                TreeDraft(tuple(token_ids), (-1, -1, -1), (probs, None, None, None)),
                laws,
                CoinSource(case).at(0, Purpose.VERIFY),
            )
            for laws, probs in rows
        )
        assert one == other
        accepted.add(one.path)
    assert accepted == {(), (0,), (1,), (2,)}


def test_races_have_the_same_winners():
    for case in range(100):
        target, _, token_ids = round_of(case)
        one, other = (
            verify_point_mass(Draft(token_ids), probs, RaceCoins(CoinSource(case), 7))
            for probs in (LawRows(target, 40), np.array([np.asarray(law) for law in target]))
        )
        assert one == other


def scaled_after(target, drafted, scale=1):
    """The beginning's weight is applied to what is left, not to the target's law."""
    return target.residual(as_law(drafted)) if isinstance(target, Law) else difference(target, drafted, scale)


def without_the_draft(target, drafted, scale=1):
    """The draft's law is not taken away."""
    return target if isinstance(target, Law) else difference(target, drafted, scale)


@pytest.mark.parametrize(
    ("rule", "room", "wrong"),
    [
        (verify_token, token, without_the_draft),
        (verify_block, block, without_the_draft),
        (verify_block, block, scaled_after),
    ],
)
def test_the_comparison_detects_another_difference_on_the_cores_laws(rule, room, wrong, monkeypatch):
    monkeypatch.setattr(room, "difference", wrong)
    assert any(one != other for one, other, _ in (results(rule, case) for case in range(300)))
