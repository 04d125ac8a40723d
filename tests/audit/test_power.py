"""What the default budget finds; benchmarks/audit_power.py runs more of the same."""

import numpy as np
import pytest

from benchmarks.audit_power import is_found, place
from outrider.audit.control import moved_by_fault


@pytest.mark.parametrize(("distance", "is_wrong"), [(0.02, True), (0.0, False)])
def test_a_total_variation_of_two_in_a_hundred_is_found_and_nothing_else(distance, is_wrong):
    rng = np.random.default_rng(7)
    assert all(is_found(rng, distance) == is_wrong for _ in range(12))


def test_the_fault_moves_the_law_as_far_as_is_said():
    target, drafted, faulty = place(np.random.default_rng(8))
    assert moved_by_fault(target, drafted) == pytest.approx(abs(faulty - target).sum() / 2)
    assert moved_by_fault(target, None) == 0
    assert moved_by_fault(np.array([0.25, 0.75]), 0) == pytest.approx(0.1875)
