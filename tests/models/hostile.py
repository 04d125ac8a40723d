"""GGUF headers written field by field, so that each can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence

U32, F32, STRING, ARRAY, U64 = 4, 6, 8, 9, 10


def text(value: str | bytes) -> bytes:
    """Return a length-prefixed string."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, payload: bytes) -> bytes:
    """Return one metadata value."""
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name: str, shape: Sequence[int] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    """Return one tensor header; the shape has the fastest dimension first, as the file does."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(
    entries: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    num_tensors: int | None = None,
    num_entries: int | None = None,
    body: bytes = b"",
) -> bytes:
    """Return a file; the counts are right unless others are given."""
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(entries) if num_entries is None else num_entries,
    )
    head = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + body
