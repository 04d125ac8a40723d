"""Pages of a map that were read are given back, and read again when they are looked at again."""

from pathlib import Path

import numpy as np

from outrider.models.mapping import give_back_pages, map_file


def resident_kib(path):
    """Return how much of a mapped file lies in this process's memory."""
    maps = Path("/proc/self/smaps").read_text().splitlines()
    start = next(number for number, line in enumerate(maps) if line.endswith(str(path)))
    return next(int(line.split()[1]) for line in maps[start:] if line.startswith("Rss:"))


def test_pages_are_given_back_and_come_again(tmp_path):
    path = tmp_path / "weights"
    expected = np.random.default_rng(1).integers(0, 256, 1 << 22, np.uint8)
    expected.tofile(path)
    whole = map_file(path)
    part = whole[12345 : -(1 << 20)].reshape(-1, 1)[100:].reshape(-1)
    total = int(whole.sum(dtype=np.int64))
    before = resident_kib(path)
    give_back_pages(part)
    assert resident_kib(path) <= before - (part.nbytes >> 10) + 64
    assert whole.sum(dtype=np.int64) == total
    np.testing.assert_array_equal(whole, expected)


def test_parts_smaller_than_a_page_and_arrays_of_other_origin_are_left_alone(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(256)) * 64)
    whole = map_file(path)
    own = np.arange(1 << 16, dtype=np.uint8)
    for data in (whole[5:9], whole[:0], own, own[10:], np.frombuffer(b"abc", np.uint8)):
        copy = data.copy()
        give_back_pages(data)
        np.testing.assert_array_equal(data, copy)
