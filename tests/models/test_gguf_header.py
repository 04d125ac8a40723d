"""The native parser against files that lie."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hostile import ARRAY, STRING, U32, U64, entry, header, tensor, text

from outrider import _core

BODY = bytes(64)


def parse(data: bytes):
    return _core.parse_gguf(np.frombuffer(data, np.uint8))


def array(kind: int, count: int, payload: bytes = b"") -> bytes:
    return entry("a", ARRAY, struct.pack("<IQ", kind, count) + payload)


def test_every_kind_of_value_is_read():
    values = {
        "u8": (0, struct.pack("<B", 200), 200),
        "i8": (1, struct.pack("<b", -3), -3),
        "u16": (2, struct.pack("<H", 65535), 65535),
        "i16": (3, struct.pack("<h", -30000), -30000),
        "u32": (4, struct.pack("<I", 2**32 - 1), 2**32 - 1),
        "i32": (5, struct.pack("<i", -(2**31)), -(2**31)),
        "f32": (6, struct.pack("<f", 0.5), 0.5),
        "bool": (7, b"\x01", True),
        "string": (8, text("naïve"), "naïve"),
        "u64": (10, struct.pack("<Q", 2**64 - 1), 2**64 - 1),
        "i64": (11, struct.pack("<q", -(2**63)), -(2**63)),
        "f64": (12, struct.pack("<d", 1e300), 1e300),
    }
    metadata, tensors = parse(header([entry(key, kind, data) for key, (kind, data, _) in values.items()]))
    assert metadata == {key: value for key, (_, _, value) in values.items()}
    assert type(metadata["bool"]) is bool
    assert tensors == []


def test_arrays_are_read():
    strings = entry("s", ARRAY, struct.pack("<IQ", STRING, 2) + text("a") + text(""))
    numbers = entry("n", ARRAY, struct.pack("<IQ3i", 5, 3, 1, -2, 3))
    metadata, _ = parse(header([strings, numbers]))
    assert metadata["s"] == ["a", ""]
    assert metadata["n"].dtype == np.int32
    assert metadata["n"].tolist() == [1, -2, 3]


def test_version_2_is_read_and_shapes_have_the_slowest_dimension_first():
    _, tensors = parse(header([], [tensor("w", (32, 2), kind=8)], version=2, body=bytes(68)))
    ((name, kind, shape, offset, size),) = tensors
    assert (name, kind, shape, size) == ("w", "Q8_0", (2, 32), 68)
    assert offset % 32 == 0


LIES = [
    (b"", "0 left"),
    (b"GGU", "3 left"),
    (header(magic=b"GGML"), "begins with 'GGML'"),
    (header(magic=b"\x00\x1b[3"), r"begins with '\?\?\[3'"),
    (header(version=1), "version 1"),
    (header(version=4), "version 4"),
    (header(version=3 << 24), "big-endian"),
    (header(num_tensors=2**63), "counts 9223372036854775808 tensors"),
    (header(num_entries=2**64 - 1), "counts 18446744073709551615 metadata values"),
    (header(num_entries=1), "counts 1 metadata values, the rest of the file can hold at most 0"),
    (header([entry("k", 13, b"")], body=BODY), "metadata type 13"),
    (header([entry("k", 7, b"\x02")], body=BODY), "boolean of value 2"),
    (header([entry("k", STRING, struct.pack("<Q", 2**62))], body=BODY), "wants 4611686018427387904 bytes"),
    (header([entry("k", STRING, text(b"\xff\xfe"))], body=BODY), "not valid UTF-8"),
    (header([struct.pack("<Q", 70000) + bytes(70000)], body=BODY), "name of 70000 bytes"),
    (header([entry("k", U32, bytes(4))] * 2), "'k' occurs twice"),
    (header([array(STRING, 2**60)], body=BODY), "counts 1152921504606846976 strings"),
    (header([array(U64, 2**61)], body=BODY), "counts 2305843009213693952 elements"),
    (header([array(ARRAY, 1)], body=BODY), "array of arrays"),
    (header([array(99, 1)], body=BODY), "metadata type 99"),
    (header([entry("general.alignment", U32, struct.pack("<I", 0))]), "general.alignment is 0"),
    (header([entry("general.alignment", U32, struct.pack("<I", 48))]), "general.alignment is 48"),
    (header([entry("general.alignment", STRING, text("32"))]), "wrong type"),
    (header([], [tensor("t", (), kind=0)], body=BODY), "0 dimensions"),
    (header([], [tensor("t", (1,) * 5, kind=0)], body=BODY), "5 dimensions"),
    (header([], [tensor("t", (0,))], body=BODY), "size 0"),
    (header([], [tensor("t", (4,), kind=10)], body=BODY), r"type 10 \(Q2_K\)"),
    (header([], [tensor("t", (4,), kind=4_000_000_000)], body=BODY), "type 4000000000"),
    (header([], [tensor("t", (33,), kind=8)], body=BODY), "rows of 33 elements"),
    (header([], [tensor("t", (2**62,))], body=BODY), "wants more than the 64 bytes"),
    (header([], [tensor("t", (2**33, 2**33))], body=BODY), "wants more than"),
    (header([], [tensor("t", (2**32, 2**32, 2**32, 2**32))], body=BODY), "wants more than"),
    (header([], [tensor("t", (17,))], body=BODY), "wants more than the 64 bytes"),
    (header([], [tensor("t", offset=64)], body=BODY), "ends at byte 64"),
    (header([], [tensor("t", offset=2**64 - 32)], body=BODY), "ends at byte 18446744073709551584"),
    (header([], [tensor("t", offset=4)], body=BODY), "multiple of the alignment"),
    (header([], [tensor("t"), tensor("t", offset=32)], body=BODY), "'t' occurs twice"),
    (header([], [tensor("a"), tensor("b")], body=BODY), "'a' and 'b' overlap|'b' and 'a' overlap"),
    (header([], [tensor("a", (16,)), tensor("b", offset=32)], body=BODY), "'a' and 'b' overlap"),
    (header([], [tensor("n" * 64)], body=BODY), "name of 64 bytes"),
    (header([], [tensor("t")]), "wants more than the 0 bytes"),
]


@pytest.mark.parametrize(("data", "said"), LIES, ids=[said for _, said in LIES])
def test_a_lie_is_named_in_one_line(data, said):
    with pytest.raises(ValueError, match=said) as caught:
        parse(data)
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 400


def test_every_truncation_is_refused():
    whole = header(
        [entry("s", ARRAY, struct.pack("<IQ", STRING, 2) + text("ab") + text("c")), entry("n", U32, bytes(4))],
        [tensor("a", (8,)), tensor("b", (8,), offset=32)],
        body=BODY,
    )
    parse(whole)
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"\w"):
            parse(whole[:length])


def test_random_damage_never_does_more_than_raise():
    whole = header(
        [
            entry("general.architecture", STRING, text("llama")),
            entry("s", ARRAY, struct.pack("<IQ", STRING, 3) + text("ab") + text("c") + text("")),
            entry("n", ARRAY, struct.pack("<IQ4I", U32, 4, 1, 2, 3, 4)),
        ],
        [tensor("a", (8,)), tensor("b", (32, 2), kind=8, offset=32)],
        body=bytes(128),
    )
    rng = np.random.default_rng(0)
    interesting = np.array([0, 1, 0x7F, 0x80, 0xFF], np.uint8)
    refused = 0
    for _ in range(20_000):
        damaged = np.frombuffer(whole, np.uint8).copy()
        at = rng.integers(0, damaged.size, rng.integers(1, 9))
        damaged[at] = np.where(
            rng.random(at.size) < 0.5, rng.choice(interesting, at.size), rng.integers(0, 256, at.size)
        )
        if rng.random() < 0.3:
            damaged = damaged[: rng.integers(0, damaged.size)]
        try:
            _, tensors = _core.parse_gguf(damaged)
        except ValueError:
            refused += 1
        else:
            assert all(offset + size <= damaged.size for *_, offset, size in tensors)
    assert refused > 5_000
