"""Logits to laws: against a reference that sorts everything, and at the edges that broke other engines."""

import numpy as np
import pytest

from outrider.errors import NumericalError
from outrider.sampling import SamplingParams, greedy_token_ids, target_probs

INF = float("inf")


def law(logits, **params):
    return target_probs(np.array([logits], dtype=np.float32), SamplingParams(**params))[0]


def reference(logits, params):
    """The documented order, one token at a time, by sorting the whole row."""
    scaled = (logits.astype(np.float64) - logits.max()) / params.temperature
    weights = np.exp(scaled)
    kept = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    if params.min_p is not None:
        kept = [token_id for token_id in kept if weights[token_id] >= params.min_p]
    if params.top_k is not None:
        kept = kept[: params.top_k]
    if params.top_p is not None:
        mass, total, nucleus = 0.0, weights[kept].sum(), []
        for token_id in kept:
            nucleus.append(token_id)
            mass += weights[token_id]
            if mass >= params.top_p * total:
                break
        kept = nucleus
    if params.typical_p is not None and params.typical_p < 1:
        law = weights[kept] / weights[kept].sum()
        entropy = -(law * np.log(law)).sum()
        places = sorted(range(len(kept)), key=lambda place: abs(-np.log(law[place]) - entropy))
        mass = np.cumsum(law[places])
        kept = [kept[place] for place in places[: int(np.searchsorted(mass, params.typical_p)) + 1]]
    probs = np.zeros(len(logits))
    probs[kept] = weights[kept] / weights[kept].sum()
    return probs


PARAMS = [
    {},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 10_000},
    {"top_p": 0.31},
    {"top_p": 0.97},
    {"min_p": 0.0},
    {"min_p": 0.07},
    {"min_p": 1.0},
    {"min_p": 0.03, "top_k": 9, "top_p": 0.73},
    {"top_k": 4, "top_p": 0.83},
    {"min_p": 0.001, "top_p": 0.9999},
    {"typical_p": 0.37},
    {"typical_p": 0.97},
    {"typical_p": 1.0},
    {"typical_p": 0.61, "min_p": 0.03, "top_k": 9, "top_p": 0.73},
]


@pytest.mark.parametrize("limits", PARAMS, ids=str)
@pytest.mark.parametrize("temperature", [0.37, 1.0, 2.5])
@pytest.mark.parametrize("size", [1, 2, 50, 3000, 20_000])
def test_matches_a_reference_that_sorts_everything(size, temperature, limits):
    rng = np.random.default_rng(size)
    logits = (2 * rng.standard_normal((2, size))).astype(np.float32)
    params = SamplingParams(temperature=temperature, **limits)
    probs = target_probs(logits, params)
    assert probs.dtype == np.float64
    for row in range(2):
        expected = reference(logits[row], params)
        assert ((probs[row] > 0) == (expected > 0)).all()
        np.testing.assert_allclose(probs[row], expected, rtol=1e-12)


@pytest.mark.parametrize(
    "limits", [{"top_k": 6}, {"top_p": 0.55}, {"min_p": 0.2}, {"top_k": 40, "top_p": 0.6}], ids=str
)
def test_matches_the_reference_where_most_logits_tie(limits):
    logits = np.random.default_rng(1).integers(0, 4, size=(3, 4000)).astype(np.float32)
    params = SamplingParams(temperature=1.0, **limits)
    for row, probs in enumerate(target_probs(logits, params)):
        assert ((probs > 0) == (reference(logits[row], params) > 0)).all()


def test_rows_do_not_depend_on_each_other():
    logits = np.random.default_rng(2).standard_normal((5, 700)).astype(np.float32)
    for params in (SamplingParams(temperature=0.8), SamplingParams(temperature=0.8, top_p=0.9, top_k=100)):
        together = target_probs(logits, params)
        assert all((target_probs(logits[row : row + 1], params)[0] == together[row]).all() for row in range(5))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_are_left_as_they_were(temperature):
    logits = np.random.default_rng(3).standard_normal((2, 50)).astype(np.float32)
    logits.setflags(write=False)
    target_probs(logits, SamplingParams(temperature=temperature, top_k=5, top_p=0.9, min_p=0.01))


def test_no_rows_give_no_laws():
    assert target_probs(np.zeros((0, 9), dtype=np.float32), SamplingParams(temperature=1.0)).shape == (0, 9)


# --- temperature


def test_temperature_zero_is_the_point_mass_on_the_lowest_id_of_a_tie():
    assert law([1, 3, 3, 2]).tolist() == [0, 1, 0, 0]
    assert greedy_token_ids(np.array([[1, 3, 3, 2], [5, 5, 5, 5]], dtype=np.float32)).tolist() == [1, 0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-45, 1e-6, 1e-5, 1e-4])
def test_tiny_temperature_is_finite_and_greedy(temperature):
    """Automodel#3627, vllm#27077: between zero and 1e-5 the division overflowed to NaN."""
    assert law([30, 31, -40, -INF], temperature=temperature).tolist() == [0, 1, 0, 0]
    assert law([31, 31, -40, -3e38], temperature=temperature).tolist() == [0.5, 0.5, 0, 0]


def test_rows_of_greedy_tiny_and_ordinary_temperature_are_all_laws():
    """vllm#27077: a mixed batch gave empty rows once the sentinel for greedy had changed."""
    for temperature in (0.0, 1e-6, 1.0):
        probs = law([2.0, 1.9, 0.0], temperature=temperature)
        assert probs.sum() == pytest.approx(1.0, abs=1e-15)
        assert probs.argmax() == 0


def test_high_temperature_approaches_the_uniform_law():
    np.testing.assert_allclose(law([5, 0, -5], temperature=100.0), [1 / 3] * 3, atol=0.02)


def test_law_of_a_large_vocabulary_is_normalised_far_within_what_verification_asks():
    logits = (4 * np.random.default_rng(4).standard_normal((2, 151_936))).astype(np.float32)
    for limits in ({}, {"top_p": 0.95}, {"top_k": 50}):
        probs = target_probs(logits, SamplingParams(temperature=1.0, **limits))
        assert abs(probs.sum(axis=1) - 1.0).max() < 1e-12


# --- limits


def test_top_k_keeps_exactly_k_and_the_lowest_ids_of_a_tie():
    assert law([1, 2, 2, 2, 3], temperature=1.0, top_k=3).nonzero()[0].tolist() == [1, 2, 4]


def test_top_p_keeps_the_token_that_reaches_it():
    logits = np.log([0.5, 0.3, 0.2])
    assert law(logits, temperature=1.0, top_p=0.49).nonzero()[0].tolist() == [0]
    assert law(logits, temperature=1.0, top_p=0.51).nonzero()[0].tolist() == [0, 1]
    assert law(logits, temperature=1.0, top_p=0.81).nonzero()[0].tolist() == [0, 1, 2]


def test_top_p_of_one_keeps_even_what_rounding_would_hide():
    assert (law([0, -60], temperature=1.0, top_p=1.0) > 0).all()


def test_top_p_goes_on_until_everything_is_kept_if_it_must():
    """Twenty thousand equal tokens: no first look is enough."""
    kept = law(np.zeros(20_000), temperature=1.0, top_p=0.99999).nonzero()[0]
    assert kept.tolist() == list(range(len(kept)))
    assert 19_998 <= len(kept) <= 20_000


def test_top_p_keeps_everything_where_rounding_leaves_the_sum_short():
    assert (law(np.zeros(3), temperature=1.0, top_p=np.nextafter(1.0, 0.0)) > 0).all()


def test_top_p_takes_its_share_of_what_top_k_left():
    """Half of (.4, .3) is reached by one token; half of everything needs two."""
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert law(logits, temperature=1.0, top_p=0.5).nonzero()[0].tolist() == [0, 1]
    assert law(logits, temperature=1.0, top_p=0.5, top_k=2).nonzero()[0].tolist() == [0]


def test_top_p_takes_its_share_of_what_min_p_left():
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    assert law(logits, temperature=1.0, top_p=0.5, min_p=0.7).nonzero()[0].tolist() == [0]


def test_min_p_compares_with_the_most_likely_token_at_the_temperature_used():
    logits = np.log([0.5, 0.3, 0.2])
    assert law(logits, temperature=1.0, min_p=0.59).nonzero()[0].tolist() == [0, 1]
    assert law(logits, temperature=1.0, min_p=0.61).nonzero()[0].tolist() == [0]
    assert law(logits, temperature=2.0, min_p=0.61).nonzero()[0].tolist() == [0, 1, 2]


def test_typical_p_may_leave_out_the_most_likely_token():
    """Meister et al.: of (.6, .1, .1, .1, .1), with an entropy of 1.23, the tenths surprise by 2.3 and .6 by 0.51."""
    logits = np.log([0.6, 0.1, 0.1, 0.1, 0.1])
    assert law(logits, temperature=1.0, typical_p=0.5).nonzero()[0].tolist() == [0]
    logits = np.log([0.4, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])  # 1.75, 2.3 and 0.92
    assert law(logits, temperature=1.0, typical_p=0.15).nonzero()[0].tolist() == [1, 2]


def test_typical_p_looks_past_impossible_tokens():
    assert law([-INF, 0, 0], temperature=1.0, typical_p=0.9).tolist() == [0, 0.5, 0.5]


def test_limits_do_not_matter_to_a_greedy_law():
    assert law([1, 3, 2], top_k=2, top_p=0.9, min_p=0.1).tolist() == [0, 1, 0]


# --- what is not a number


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("bad", "said"), [(float("nan"), "nan"), (INF, "inf")])
def test_row_of_nan_or_infinity_is_an_error_that_names_it(temperature, bad, said):
    """vllm#42722, #45060, #53029: an id of the vocabulary's size, or a plausible one, came out."""
    logits = np.zeros((3, 8), dtype=np.float32)
    logits[1, 5] = bad
    with pytest.raises(NumericalError, match=rf"row 1 of the logits has {said} .* \(token 5\)"):
        target_probs(logits, SamplingParams(temperature=temperature, top_k=2))


def test_row_that_excludes_every_token_is_an_error():
    with pytest.raises(NumericalError, match="row 0 of the logits has -inf"):
        law([-INF, -INF], temperature=1.0)


@pytest.mark.parametrize("limits", [{}, {"top_k": 3}, {"top_p": 0.999}, {"min_p": 0.5}], ids=str)
def test_excluded_tokens_have_probability_zero(limits):
    probs = law([-INF, 1, -INF, 1.5], temperature=1.0, **limits)
    assert probs[0] == probs[2] == 0
    assert probs.sum() == pytest.approx(1.0)
