"""What the default budget finds of an engine that is wrong by little; benchmarks/audit_power.py does more of it."""

from dataclasses import asdict
from itertools import chain

import numpy as np
import pytest

from benchmarks.audit_dealing import BulkCounter, Rounds
from benchmarks.audit_power import DealtAudit, on_toy
from benchmarks.audit_toy import FAULTS, VOCAB_SIZE, Toy, moved
from outrider.audit.cells import DirectedOrder
from outrider.audit.control import moved_by_fault
from outrider.audit.draws import Prefix
from outrider.audit.sampled import Budget
from outrider.audit.tally import ACCEPTANCES, Counter


@pytest.mark.parametrize(("distance", "found"), [(0.02, 3), (0.0, 0)])
def test_a_total_variation_of_two_in_a_hundred_is_found_and_nothing_else(distance, found):
    case = on_toy("token", "draws from the whole law of the target", distance, runs=3, seed=0)
    assert (case["found"], case["void"]) == (found, 0)
    assert case["found_at_level"]["0.0001"] == found


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_rounds_that_draws_are_dealt_from_are_the_engines(rule):
    """Enumerated, the engine says the target's law to the last digit, and each fault something else."""
    right = Toy(None, rule)
    for last in range(VOCAB_SIZE):
        assert abs(right.first_token(last) - right.target[last]).max() < 1e-6  # the rounding of float32 logits
    for fault in FAULTS.values():
        assert moved(right, Toy(fault, rule)) > 0.02


@pytest.mark.parametrize("rule", ["token", "block"])
def test_what_is_counted_in_bulk_is_what_is_counted_one_by_one(rule):
    right, wrong = Toy(None, rule), Toy(FAULTS["draws from the row behind"], rule)
    budget = Budget()
    rounds = Rounds(right, wrong, budget.num_tokens, budget.full_every)
    audit = DealtAudit(right, rounds, rounds, 0.5, budget)
    prefix = Prefix("after 2", (0, 2))
    laws, order = audit._laws(prefix), DirectedOrder(right.target[2], right.drafted[2])
    rng = np.random.default_rng(7)
    bulk = BulkCounter(rounds.place(2, laws, order, 3000), rounds, rng)
    one_by_one = Counter(laws, budget.num_tokens, 3000, order, rng)
    for block in range(2):
        dealt = rounds.deal(2, np.arange(ACCEPTANCES - 200) + block, 0.5, rng)
        in_first, in_each = rng.random(len(dealt.tokens)), rng.random(dealt.tokens.shape)
        bulk.add_at(dealt, in_first, in_each)
        for number, draw in enumerate(rounds.draws(dealt)):
            one_by_one._uniform = chain([in_first[number]], in_each[number])
            one_by_one.add(draw)
    found, wanted = asdict(bulk.tally), asdict(one_by_one.tally)
    for depth, (num, accepted, chances) in wanted["rates"].items():
        assert found["rates"][depth] == (num, accepted, pytest.approx(chances))
        wanted["rates"][depth] = found["rates"][depth]
    assert found == wanted
    assert len(wanted["strata"]) > 3
    assert set(wanted["drafted"]) == {"0", "1", "2"}


def test_dealt_draws_follow_the_law_of_rounds():
    right = Toy(None, "token")
    rounds = Rounds(right, right, 4, 16)
    dealt = rounds.deal(3, np.arange(40_000), 0.0, np.random.default_rng(1))
    first = np.bincount(dealt.tokens[:, 0], minlength=VOCAB_SIZE) / 40_000
    assert abs(first - right.target[3]).max() < 0.015
    for before in range(VOCAB_SIZE):
        third = dealt.tokens[dealt.tokens[:, 1] == before, 2]
        seen = np.bincount(third, minlength=VOCAB_SIZE) / len(third)
        assert abs(seen - right.target[before]).max() < 6 / len(third) ** 0.5


def test_the_fault_moves_the_law_as_far_as_is_said():
    right, wrong = Toy(None, "token"), Toy(FAULTS["draws from the whole law of the target"], "token")
    for last in range(VOCAB_SIZE):
        distance = abs(wrong.first_token(last) - right.first_token(last)).sum() / 2
        assert moved_by_fault(right.target[last], right.drafted[last]) == pytest.approx(distance, abs=1e-6)
    assert moved_by_fault(right.target[0], None) == 0
    assert moved_by_fault(np.array([0.25, 0.75]), 0) == pytest.approx(0.1875)
