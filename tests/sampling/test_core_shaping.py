"""What the core does to a row before temperature, against NumPy on every instruction set; and wrong variants."""

import functools
from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy_shaping import add_bias, exclude, keep_allowed, penalise

from outrider import _core
from outrider.sampling import SamplingParams

ISAS = _core.available_isas()
NAN, INF = float("nan"), float("inf")


def ids(*values):
    return np.array(values, dtype=np.int64)


NO_IDS, NO_BIASES, NEUTRAL = ids(), np.empty(0, np.float32), SamplingParams()


class Shaping(NamedTuple):
    """The arguments of :func:`_core.shape_row`; by default there is nothing to do."""

    bias_ids: np.ndarray = NO_IDS
    biases: np.ndarray = NO_BIASES
    seen_ids: np.ndarray = NO_IDS
    output_counts: np.ndarray = NO_IDS
    excluded_ids: np.ndarray = NO_IDS
    params: SamplingParams = NEUTRAL
    allowed: np.ndarray | None = None


def by_core(row, shaping, isa=""):
    penalties = {
        name: getattr(shaping.params, name)
        for name in ("repetition_penalty", "presence_penalty", "frequency_penalty")
        if getattr(shaping.params, name) is not None
    }
    arrays = {name: value for name, value in shaping._asdict().items() if name != "params"}
    return _core.shape_row(row, **arrays, **penalties, isa=isa)


def by_numpy(row, shaping):
    if not ((row < INF).all() and (row > -INF).any()):  # NaN is not below anything
        return False
    add_bias(row, shaping.bias_ids, shaping.biases)
    penalise(row, shaping.seen_ids, shaping.output_counts, shaping.params)
    if shaping.allowed is not None:
        keep_allowed(row, shaping.allowed)
    exclude(row, shaping.excluded_ids)
    return True


def check(shape, row, shaping):
    expected, room = row.copy(), np.full(len(row) + 2, 7, np.float32)
    room[1:-1] = row
    with np.errstate(invalid="ignore", over="ignore"):
        is_sound = by_numpy(expected, shaping)
    assert shape(room[1:-1], shaping) == is_sound
    if is_sound:
        assert room[1:-1].tobytes() == expected.tobytes(), "not the same bits"
    else:
        assert repr(_core.argmax(room[1:-1])) == repr(_core.argmax(row)), "what is wrong cannot be told any more"
    assert (room[[0, -1]] == 7).all(), "written beyond the row"


def cases():
    """Rows of all lengths near a lane's multiples, some with what is no number in any place, settings by chance."""
    rng = np.random.default_rng(7)
    penalties = [None, 0.5, -0.5, 1.3]
    for size in [*range(1, 36), 64, 513, 1501]:
        row = rng.standard_normal(size).astype(np.float32)
        bits = rng.integers(0, 256, (size + 7) // 8).astype(np.uint8)
        for allowed, repetition, presence, frequency in product(
            (None, bits, np.zeros_like(bits)), (None, 0.7, 1.4), penalties[:3], penalties[1:]
        ):
            some = [rng.permutation(size)[: rng.integers(0, size + 1)] for _ in range(3)]
            shaping = Shaping(
                some[0],
                rng.standard_normal(len(some[0])).astype(np.float32),
                some[1],
                rng.integers(0, 3, len(some[1])),
                some[2][:4],
                SamplingParams(repetition_penalty=repetition, presence_penalty=presence, frequency_penalty=frequency),
                allowed,
            )
            yield row, shaping
        yield np.full_like(row, -INF), shaping
        for bad, place in product((NAN, INF, -INF, 3e38, -3e38, -0.0), {*range(min(size, 36)), size - 1}):
            spoilt = row.copy()
            spoilt[place] = bad
            yield spoilt, shaping._replace(allowed=bits)


@pytest.mark.parametrize("isa", ISAS)
def test_rows_are_shaped_as_by_numpy_and_what_is_no_number_can_be_told(isa):
    for row, shaping in cases():
        check(functools.partial(by_core, isa=isa), row, shaping)


def highest_bit_first(row, shaping):
    bits = shaping.allowed
    order = None if bits is None else np.packbits(np.unpackbits(bits), bitorder="little")
    return by_core(row, shaping._replace(allowed=order))


def whole_lanes_only(row, shaping):
    rest = row[len(row) // 16 * 16 :].copy()
    is_sound = by_core(row, shaping)
    row[len(row) // 16 * 16 :] = rest
    return is_sound


def nothing_left_is_fine(row, shaping):
    return by_core(row, shaping) or bool((row < INF).all())


def looks_behind_the_mask(row, shaping):
    return by_core(row, shaping) and bool((row > -INF).any())


def masks_before_it_looks(row, shaping):
    if shaping.allowed is not None:
        keep_allowed(row, shaping.allowed)
    return by_core(row, shaping)


def penalties_before_bias(row, shaping):
    is_sound = by_core(row, shaping._replace(bias_ids=NO_IDS, biases=NO_BIASES))
    return is_sound and by_core(row, Shaping(shaping.bias_ids, shaping.biases))


def counts_the_prompt(row, shaping):
    return by_core(row, shaping._replace(output_counts=shaping.output_counts + 1))


def counts_once(row, shaping):
    return by_core(row, shaping._replace(output_counts=np.minimum(shaping.output_counts, 1)))


def masks_first_and_biases_after(row, shaping):
    is_sound = by_core(row, Shaping(allowed=shaping.allowed, excluded_ids=shaping.excluded_ids))
    row[np.isneginf(row)] = -3e38
    return is_sound and by_core(row, shaping._replace(allowed=None, excluded_ids=NO_IDS))


@pytest.mark.parametrize(
    "wrong",
    [
        highest_bit_first,
        whole_lanes_only,
        nothing_left_is_fine,
        looks_behind_the_mask,
        masks_before_it_looks,
        penalties_before_bias,
        counts_the_prompt,
        counts_once,
        masks_first_and_biases_after,
    ],
    ids=lambda wrong: wrong.__name__,
)
def test_wrong_ways_are_caught(wrong):
    def check_all():
        for row, shaping in cases():
            check(wrong, row, shaping)

    with pytest.raises(AssertionError):
        check_all()


@pytest.mark.parametrize(
    ("wrong", "error", "problem"),
    [
        ({"allowed": np.zeros(2, np.uint8)}, ValueError, "allowed has 2 entries; a bit for each token has 3"),
        ({"bias_ids": ids(1)}, ValueError, "biases has 0 entries; bias_ids has 1"),
        ({"output_counts": ids(1)}, ValueError, "output_counts has 1 entries; seen_ids has 0"),
        ({"seen_ids": ids(17), "output_counts": ids(0)}, IndexError, "seen_ids has 17; the row has ids 0 to 16"),
        ({"excluded_ids": ids(3, -1)}, IndexError, "excluded_ids has -1"),
        ({"bias_ids": ids(99), "biases": np.ones(1, np.float32)}, IndexError, "bias_ids has 99"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, error, problem):
    row = np.zeros(17, np.float32)
    with pytest.raises(error, match=problem):
        by_core(row, Shaping(**wrong))
    assert not row.any()


def test_a_row_that_cannot_be_written_to_is_refused():
    fixed = np.zeros(17, np.float32)
    fixed.setflags(write=False)
    for bad in (fixed, np.zeros(17), np.zeros(34, np.float32)[::2]):
        with pytest.raises(TypeError):
            by_core(bad, Shaping())
