"""What the default budget finds of an engine that is wrong by little; benchmarks/audit_power.py does more of it."""

import numpy as np
import pytest

from benchmarks.audit_power import FAULTS, VOCAB_SIZE, Toy, moved, on_toy
from outrider.audit.control import moved_by_fault


@pytest.mark.parametrize(("distance", "found"), [(0.02, 3), (0.0, 0)])
def test_a_total_variation_of_two_in_a_hundred_is_found_and_nothing_else(distance, found):
    case = on_toy("token", "draws from the whole law of the target", distance, runs=3, seed=0)
    assert (case["found"], case["void"]) == (found, 0)


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_rounds_that_draws_are_dealt_from_are_the_engines(rule):
    """Enumerated, the engine says the target's law to the last digit, and each fault something else."""
    right = Toy(None, rule)
    for last in range(VOCAB_SIZE):
        assert abs(right.first_token(last) - right.target[last]).max() < 1e-6  # the rounding of float32 logits
    for fault in FAULTS.values():
        assert moved(right, Toy(fault, rule)) > 0.02


def test_the_fault_moves_the_law_as_far_as_is_said():
    right, wrong = Toy(None, "token"), Toy(FAULTS["draws from the whole law of the target"], "token")
    for last in range(VOCAB_SIZE):
        distance = abs(wrong.first_token(last) - right.first_token(last)).sum() / 2
        assert moved_by_fault(right.target[last], right.drafted[last]) == pytest.approx(distance, abs=1e-6)
    assert moved_by_fault(right.target[0], None) == 0
    assert moved_by_fault(np.array([0.25, 0.75]), 0) == pytest.approx(0.1875)
