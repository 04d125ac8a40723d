"""The core's laws against NumPy's, on every instruction set; and wrong variants that the same comparison catches."""

import functools
from itertools import pairwise, product

import numpy as np
import numpy_law
import pytest
from law_mutants import WRONG_LAWS, WRONG_USES, Numpy, Wrong

from outrider import _core
from outrider._core import Law
from outrider.verification.coins import CoinSource, draw_at
from outrider.verification.coupled import exponential_noise, noise_key
from outrider.verification.law import difference

ISAS = _core.available_isas()
NAN, INF = float("nan"), float("inf")
LIMITS = [
    {},
    {"temperature": 0.6},
    {"temperature": 1e-300},
    {"min_p": 0.06},
    {"temperature": 2.0, "min_p": 0.1},
    {"min_p": 1.0},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 10**6},
    {"top_p": 0.31},
    {"top_p": 0.95},
    {"top_p": 0.999999},
    {"typical_p": 0.4},
    {"typical_p": 0.95},
    {"typical_p": 0.999999, "temperature": 2.0},
    {"temperature": 1.3, "min_p": 0.001, "top_k": 40, "top_p": 0.9, "typical_p": 0.9},
]


def rows(step=9):
    """Rows of random logits of sizes up to 70, every one or every few, and beyond; and what breaks samplers."""
    rng = np.random.default_rng(5)
    for size in [*range(1, 71, step), 64, 511, 513, 1500]:
        yield (3 * rng.standard_normal(size)).astype(np.float32)
    row = (3 * rng.standard_normal(300)).astype(np.float32)
    yield row[1:]  # not aligned to anything but a float
    yield np.zeros(130, np.float32)
    yield rng.integers(-2, 3, 700).astype(np.float32)
    yield np.where(rng.random(200) < 0.9, -INF, row[:200]).astype(np.float32)
    yield np.array([*[-INF] * 70, 1.0, *[-INF] * 5], np.float32)
    yield np.array([*[-INF] * 600, 1.0, 0.5, *[-INF] * 1000, 2.0, *[-INF] * 700], np.float32)  # whole blocks of nothing
    yield np.array([3e38, -3e38, 3e38, 0.0], np.float32)
    yield np.array([1e-45, 0.0, -1e-45, -0.0, 2e-39], np.float32)
    yield np.linspace(-800, 0, 900).astype(np.float32)
    yield np.array([0.0, -707.9, -708.1, -745.0], np.float32)


def vocabulary(seed, peak=8.0):
    """A row as a model gives them: a bell, and a few tokens that stand out."""
    rng = np.random.default_rng(seed)
    row = (2.5 * rng.standard_normal(151_936)).astype(np.float32)
    row[rng.integers(0, len(row), 40)] += rng.uniform(peak, peak + 6, 40).astype(np.float32)
    return row


class Core:
    """The core with one instruction set, law by law."""

    def __init__(self, isa):
        self.argmax = functools.partial(_core.argmax, isa=isa)
        self.softmax = functools.partial(Law.softmax, isa=isa)
        self.listed = functools.partial(Law.listed, isa=isa)


def law_of(core, row, limits):
    return core.softmax(row, **{"temperature": 1.0, **limits})


def check_law(core, row, limits):
    law = law_of(core, row, limits)
    expected = numpy_law.softmax(row, **limits)
    found = np.asarray(law)
    assert ((found > 0) == (expected > 0)).all()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-305)
    assert law.shape == row.shape
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert law.max() == found.max()
    assert all(law[token_id] == found[token_id] for token_id in range(0, len(row), 1 + len(row) // 50))
    check_use(law, found)


def check_use(law, probs):
    """Everything a law is asked for, against the same on its probabilities."""
    for count in (0, 1, 3, 20, len(probs) + 1 if len(probs) < 2000 else 5):
        assert law.top(count) == numpy_law.top(probs, count)
    for uniform in (0.0, 0.25, 0.5, 0.999, np.nextafter(1, 0), *np.random.default_rng(1).random(12)):
        drawn = law.draw(uniform)
        assert probs[drawn] > 0
        # At the seam between two tokens rounding may take either.
        assert numpy_law.draw(probs, max(uniform - 1e-12, 0)) <= drawn <= numpy_law.draw(probs, uniform + 1e-12)
    ids = np.flatnonzero(probs)
    for key in (noise_key(CoinSource(7), position) for position in range(12)):
        with np.errstate(over="ignore"):
            assert law.race(key) == ids[np.argmin(exponential_noise(key, ids) / probs[ids])]
    token_id = int(probs.argmax())
    np.testing.assert_allclose(
        np.asarray(law.without(token_id)), numpy_law.without(probs, token_id), rtol=1e-12, atol=1e-305
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_laws_and_all_that_is_asked_of_them_are_numpys(limits, isa):
    for row in rows(step=9 if limits else 1):
        check_law(Core(isa), row, limits)


@pytest.mark.parametrize("isa", ISAS)
def test_laws_over_a_whole_vocabulary_are_numpys(isa):
    for limits in ({}, LIMITS[-1], {"typical_p": 0.95}, {"temperature": 4.0, "top_p": 0.9}):
        check_law(Core(isa), vocabulary(3), limits)


def test_every_instruction_set_gives_the_same_bits():
    cores = [*map(Core, ISAS)]
    for limits in LIMITS:
        for row, other in zip(rows(), map(np.negative, rows()), strict=True):
            finite = np.where(np.isfinite(other), other, 0).astype(np.float32)
            seen = set()
            for core in cores:
                law, drafted = law_of(core, row, limits), law_of(core, finite, {})
                left = law.residual(drafted, 0.7)
                seen.add((np.asarray(law).tobytes(), np.asarray(left).tobytes(), law.sum(), left.sum(), law.max()))
            assert len(seen) == 1


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("ours", [{}, {"top_k": 9}, {"top_p": 0.8}], ids=str)
@pytest.mark.parametrize("theirs", [{}, {"top_k": 9}, {"min_p": 0.02}], ids=str)
def test_what_a_rejection_leaves_is_the_same_to_the_bit(ours, theirs, isa):
    rng = np.random.default_rng(2)
    for size in (1, 2, 7, 8, 9, 64, 65, 513, 1300):
        one, other = (
            law_of(Core(isa), (2 * rng.standard_normal(size)).astype(np.float32), lim) for lim in (ours, theirs)
        )
        probs, drafted = np.asarray(one), np.asarray(other)
        for scale in (1.0, 0.37, 0.0):
            expected = difference(probs, drafted, scale)
            left = one.residual(other, scale)
            found = np.asarray(left)
            assert (found == expected).all()
            assert left.sum() == pytest.approx(expected.sum(), rel=1e-12, abs=1e-300)
            assert (np.asarray(one.residual(Core(isa).listed(drafted), scale)) == expected).all()
            if expected.sum() > 1e-9:
                check_use(left, found)
                np.testing.assert_allclose(np.asarray(left.normalised()), expected / expected.sum(), rtol=1e-12)
                again = left.normalised().residual(other.without(0)) if size > 1 else left
                assert (np.asarray(again) >= 0).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("limits", [{}, {"top_k": 9}], ids=str)
def test_what_a_draft_that_cannot_say_every_token_leaves_is_numpys(limits, isa):
    """Blocks of which it can say nothing are neither kept nor summed again."""
    rng = np.random.default_rng(4)
    row, theirs = (2 * rng.standard_normal((2, 2600))).astype(np.float32)
    theirs[:600] = theirs[1000:2100] = -np.inf
    one, other = law_of(Core(isa), row, {}), law_of(Core(isa), theirs, limits)
    for scale in (1.0, 0.37):
        left, expected = one.residual(other, scale), difference(np.asarray(one), np.asarray(other), scale)
        assert (np.asarray(left) == expected).all()
        assert left.sum() == pytest.approx(expected.sum(), rel=1e-12)
        check_use(left, expected)


@pytest.mark.parametrize("isa", ISAS)
def test_listed_weights_are_kept_as_they_are(isa):
    rng = np.random.default_rng(3)
    for size in (1, 5, 512, 1100):
        weights = np.where(rng.random(size) < 0.5, 0.0, rng.random(size))
        weights[-1] = 0.5
        law = Core(isa).listed(weights)
        assert (np.asarray(law) == weights).all()
        check_use(law, weights)
        ids = np.sort(rng.choice(5000, size, replace=False)).astype(np.int32)
        sparse = Core(isa).listed(weights, ids, 5000)
        dense = np.zeros(5000)
        dense[ids] = weights
        assert (np.asarray(sparse) == dense).all()
        check_use(sparse, dense)
        assert [sparse.race(key) for key in range(50)] == [Core(isa).listed(dense).race(key) for key in range(50)]


@pytest.mark.parametrize("isa", ISAS)
def test_draws_are_those_of_the_reference_for_the_same_coins(isa):
    law = law_of(Core(isa), vocabulary(8, peak=3.0), {})
    probs = np.asarray(law)
    uniforms = np.random.default_rng(4).random(300)
    assert [law.draw(uniform) for uniform in uniforms] == [draw_at(uniform, probs) for uniform in uniforms]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", [1, 15, 16, 63, 64, 65, 200])
def test_argmax_and_what_is_no_number(size, isa):
    rng = np.random.default_rng(size)
    for place in {0, size // 2, size - 1}:
        for value in (0.0, NAN, INF, -INF):
            row = rng.integers(-3, 4, size).astype(np.float32)
            row[place] = value
            for one in (row, np.full(size, value, np.float32)):
                np.testing.assert_equal(_core.argmax(one, isa=isa), numpy_law.argmax(one))
                if np.isfinite(one.max()):
                    best, probability = _core.likeliest(one, isa=isa)
                    assert probability == pytest.approx(numpy_law.softmax(one)[best], rel=1e-12)
                else:
                    for refusing in (_core.likeliest, functools.partial(Law.softmax, temperature=1.0)):
                        with pytest.raises(ValueError, match="the largest logit is"):
                            refusing(one, isa=isa)


# --- wrong variants: each differs from NumPy's by one thing, and must not pass for the core


def test_numpy_passes_for_the_core():
    assert passes_for_the_core(Wrong(numpy_law.softmax, Numpy))


@pytest.mark.parametrize("kind", WRONG_USES)
def test_a_wrong_use_of_a_law_does_not(kind):
    assert not passes_for_the_core(Wrong(numpy_law.softmax, kind))


@pytest.mark.parametrize("softmax", WRONG_LAWS)
def test_a_wrong_law_does_not(softmax):
    assert not passes_for_the_core(Wrong(softmax, Numpy))


def passes_for_the_core(core):
    try:
        for limits, row in product(LIMITS, rows()):
            check_law(core, row, limits)
    except AssertionError:
        return False
    return True


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"temperature": 0.0}, "temperature is 0"),
        ({"temperature": NAN}, "temperature is nan"),
        ({"temperature": INF}, "temperature is inf"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"min_p": NAN}, "min_p is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0"),
        ({"top_p": NAN}, "top_p is nan"),
        ({"typical_p": 2.0}, "typical_p is 2"),
        ({"isa": "sparc"}, "instruction set 'sparc'"),
    ],
    ids=str,
)
def test_a_parameter_out_of_range_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        Law.softmax(np.zeros(3, np.float32), **{"temperature": 1.0, **arguments})


def test_a_row_must_be_a_row_of_float32():
    for wrong in (np.zeros(3), np.zeros((2, 2), np.float32), np.zeros(8, np.float32)[::2], [0.0], None):
        for function in (_core.argmax, _core.likeliest, functools.partial(Law.softmax, temperature=1.0)):
            with pytest.raises(TypeError):
                function(wrong)
    with pytest.raises(ValueError, match="a row of logits has from 1"):
        _core.argmax(np.zeros(0, np.float32))


@pytest.mark.parametrize(
    ("weights", "ids", "size"),
    [
        ([0.5, NAN], None, None),
        ([0.5, -0.5], None, None),
        ([INF], None, None),
        ([], None, None),
        ([0.5], None, 2),
        ([0.5, 0.5], [1], 9),
        ([0.5, 0.5], [3, 3], 9),
        ([0.5, 0.5], [4, 3], 9),
        ([0.5, 0.5], [-1, 3], 9),
        ([0.5, 0.5], [3, 9], 9),
        ([], None, 2**31),
        ([], None, -1),
    ],
    ids=str,
)
def test_weights_and_ids_that_are_none_are_refused(weights, ids, size):
    with pytest.raises(ValueError):
        Law.listed(np.array(weights, np.float64), None if ids is None else np.array(ids, np.int32), size)


def test_what_a_law_cannot_do_is_refused():
    law, nothing = Law.listed(np.array([0.25, 0.75])), Law.listed(np.zeros(2))
    for uniform in (-0.1, 1.0, NAN):
        with pytest.raises(ValueError, match="uniform is"):
            law.draw(uniform)
    for token_id in (-1, 2, 2**40):
        for refusing in (law.__getitem__, law.without):
            with pytest.raises(IndexError):
                refusing(token_id)
    for refusing in (lambda: nothing.draw(0.5), lambda: nothing.race(1), nothing.normalised):
        with pytest.raises(ValueError, match="with the sum 0"):
            refusing()
    with pytest.raises(ValueError, match="cannot normalise"):
        Law.listed(np.array([5e-324])).normalised()
    with pytest.raises(ValueError, match="have no difference"):
        law.residual(Law.listed(np.ones(3)))
    for scale in (NAN, -1.0, INF):
        with pytest.raises(ValueError, match="scale is"):
            law.residual(law, scale)
    with pytest.raises(TypeError):
        law.race(-1)
    assert Law.listed(np.array([5e-324, 0.0])).draw(0.999) == 0
    assert Law.listed(np.array([0.0, 5e-324])).race(3) == 1
    assert law.top(-1) == nothing.top(2) == []


def test_a_law_keeps_its_own_logits_unless_it_is_to_borrow_them():
    row = np.zeros(100, np.float32)
    own = Law.softmax(row, temperature=1.0)
    borrowed = Law.softmax(row, temperature=1.0, borrow=True)
    assert (np.asarray(own) == np.asarray(borrowed)).all()
    row[7] = -INF
    assert own[7] == own[8]
    assert borrowed[7] == 0
    rows = np.zeros((2, 9), np.float32)
    law = Law.softmax(rows[1], temperature=1.0, borrow=True)
    del rows, row
    assert law.residual(law, 0.5).sum() == 0
    assert law[8] == pytest.approx(1 / 9)


def test_noise_is_defined_to_the_last_bit():
    """A law of one token tells nothing, of two which came first: so the order of noises is the reference's."""
    for key in (0, 1, 2**64 - 1, 0x9E3779B97F4A7C15):
        noise = exponential_noise(key, np.arange(200))
        order = np.argsort(noise)
        for first, second in pairwise(order[::7]):
            weights = np.zeros(200)
            weights[[first, second]] = 1.0
            assert Law.listed(weights).race(key) == first
            weights[second] = np.nextafter(noise[second] / noise[first], 2**30) * (1 + 1e-15)
            assert Law.listed(weights).race(key) == second
