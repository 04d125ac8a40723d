"""The core's copy of a row, with a mask and a check, against NumPy's on every instruction set; and wrong variants."""

import functools
from itertools import product

import numpy as np
import pytest

from outrider import _core

ISAS = _core.available_isas()
NAN, INF = float("nan"), float("inf")


def copied(row, allowed):
    """What :func:`_core.copy_row` is held against: the copy, and whether there is something to choose from."""
    expected = row.copy()
    if allowed is not None:
        is_allowed = np.unpackbits(allowed, count=len(row), bitorder="little").astype(bool)
        np.copyto(expected, -INF, where=~is_allowed)
    return expected, bool((row < INF).all() and (row > -INF).any())  # NaN is not below anything


def check_copy(copy_row, row, allowed):
    expected, is_sound = copied(row, allowed)
    room = np.full(len(row) + 2, 7, np.float32)
    assert copy_row(row, room[1:-1], allowed) == is_sound
    assert room[1:-1].tobytes() == expected.tobytes(), "not the same bits"
    assert (room[[0, -1]] == 7).all(), "written beyond the row"
    own = row.copy()
    copy_row(own, own, allowed)
    assert own.tobytes() == expected.tobytes(), "not the same bits in place"


def copies():
    """Rows of all lengths near a lane's multiples, each with NaN or infinity in every place in turn or nowhere."""
    rng = np.random.default_rng(7)
    for size in [*range(1, 36), 64, 1501]:
        row = rng.standard_normal(size).astype(np.float32)
        bits = rng.integers(0, 256, (size + 7) // 8).astype(np.uint8)
        for allowed in (None, bits, ~bits, np.zeros_like(bits), np.full_like(bits, 255)):
            yield row, allowed
            yield np.full_like(row, -INF), allowed
        for bad, place in product(
            (NAN, INF, -INF, 3.4028235e38, -3.4028235e38, -0.0), {*range(min(size, 36)), size - 1}
        ):
            spoilt = row.copy()
            spoilt[place] = bad
            yield spoilt, bits


@pytest.mark.parametrize("isa", ISAS)
def test_a_row_is_copied_with_its_mask_and_what_is_no_number_is_seen(isa):
    for row, allowed in copies():
        check_copy(functools.partial(_core.copy_row, isa=isa), row, allowed)


def highest_bit_first(row, out, allowed):
    order = None if allowed is None else np.packbits(np.unpackbits(allowed), bitorder="little")
    return _core.copy_row(row, out, order)


def checked_behind_the_mask(row, out, allowed):
    _core.copy_row(row, out, allowed)
    return bool((out < INF).all() and (row > -INF).any())


def whole_lanes_only(row, out, allowed):
    is_sound = _core.copy_row(row, out, allowed)
    out[len(row) // 16 * 16 :] = row[len(row) // 16 * 16 :]
    return is_sound


def nothing_left_is_fine(row, out, allowed):
    return _core.copy_row(row, out, allowed) or bool((row < INF).all())


@pytest.mark.parametrize(
    "wrong",
    [highest_bit_first, checked_behind_the_mask, whole_lanes_only, nothing_left_is_fine],
    ids=lambda f: f.__name__,
)
def test_wrong_copies_are_caught(wrong):
    def check_all():
        for row, allowed in copies():
            check_copy(wrong, row, allowed)

    with pytest.raises(AssertionError):
        check_all()


def test_copies_that_do_not_fit_are_refused():
    row = np.zeros(17, np.float32)
    for out, allowed in [(16, 3), (18, 3), (17, 2), (17, 4)]:
        with pytest.raises(ValueError, match=r"out has 1[68] entries|allowed has [24] bytes; 17 bits take 3"):
            _core.copy_row(row, np.zeros(out, np.float32), np.zeros(allowed, np.uint8))
    fixed = row.copy()
    fixed.setflags(write=False)
    for bad in (fixed, row.astype(np.float64), np.zeros(34, np.float32)[::2]):
        with pytest.raises(TypeError):
            _core.copy_row(row, bad)
    assert _core.copy_row(fixed, row)
