import math

import numpy as np
import pytest

from benchmarks.divergence import Comparison, compare, join, log_softmax, paired_difference


def logs(*laws):
    return np.log(np.asarray(laws))


def test_kl_of_two_hand_made_laws():
    reference, engine = logs([0.5, 0.25, 0.25]), logs([0.25, 0.5, 0.25])
    # 0.5 log 2 + 0.25 log 0.5 + 0 = 0.25 log 2
    assert compare(reference, engine).kl == pytest.approx([0.25 * math.log(2)])


def test_kl_is_not_symmetric():
    certain, even = logs([0.9, 0.1]), logs([0.5, 0.5])
    assert compare(certain, even).kl == pytest.approx([0.9 * math.log(1.8) + 0.1 * math.log(0.2)])
    assert compare(even, certain).kl == pytest.approx([0.5 * math.log(5 / 9) + 0.5 * math.log(5)])


def test_equal_laws_have_no_divergence_whatever_their_normalisation():
    logits = np.random.default_rng(1).normal(size=(4, 50)).astype(np.float32)
    assert compare(logits, logits + np.float32(8)).kl == pytest.approx(np.zeros(4), abs=1e-12)


def test_top_tokens_are_compared():
    found = compare(logs([0.6, 0.4], [0.6, 0.4]), logs([0.7, 0.3], [0.3, 0.7]))
    assert found.same_top.tolist() == [True, False]
    assert found.summary()["top1_agreement"] == 0.5


def test_laws_of_different_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 2\).*\(1, 3\)"):
        compare(logs([0.5, 0.5]), logs([0.5, 0.25, 0.25]))


def test_log_softmax_survives_large_logits():
    assert log_softmax(np.array([1000.0, 1000.0])) == pytest.approx([-math.log(2)] * 2)


def test_summary_and_join():
    parts = [Comparison(np.array([1.0, 2.0]), np.array([True, True])), Comparison(np.array([6.0]), np.array([False]))]
    summary = join(parts).summary()
    assert summary["positions"] == 3
    assert summary["mean_kl"] == 3.0
    assert summary["median_kl"] == 2.0
    assert summary["p99_kl"] == pytest.approx(5.92)


def test_paired_difference_brackets_its_mean():
    rng = np.random.default_rng(7)
    ours = rng.normal(1.0, 1.0, 400)
    found = paired_difference(ours, ours + rng.normal(0.5, 0.1, 400), np.random.default_rng(0))
    assert found["low"] < found["mean"] < found["high"]
    assert found["mean"] == pytest.approx(-0.5, abs=0.02)
    # The interval is that of the difference (0.1 / sqrt(400)), not that of either engine.
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * 0.1 / 20, rel=0.2)
