"""Reads one ``.safetensors`` file, trusting nothing in its header.

Layout: the header's length (8 bytes, little-endian), the header (JSON), the data. See
https://huggingface.co/docs/safetensors/index#format.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from outrider.errors import ModelFileError
from outrider.models.architectures.base import RawTensor
from outrider.models.fields import shown
from outrider.models.json_file import parse_json

_ELEMENT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
_MAX_DIMENSIONS = 8
_DAMAGED = "the file is damaged or truncated: fetch it again"


def read_tensors(data: NDArray[np.uint8], path: Path) -> dict[str, RawTensor]:
    """Return the tensors of a file.

    Args:
        data: The file's bytes; the tensors are views of it.
        path: For messages.

    Raises:
        ModelFileError: The header is damaged, or a tensor's type, shape and place do not agree with the file.
    """
    header, body = _split(data, path)
    spans: list[tuple[int, int, str]] = []
    tensors: dict[str, RawTensor] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, begin, end = _checked(name, entry, body.size, path)
        tensors[name] = RawTensor(dtype, shape, body[begin:end])
        spans.append((begin, end, name))
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            raise ModelFileError(f"{path}: tensors {shown(first)} and {shown(second)} overlap; {_DAMAGED}")
    return tensors


def _split(data: NDArray[np.uint8], path: Path) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    length = int.from_bytes(data[:8].tobytes(), "little")
    limit = min(_MAX_HEADER, data.size - 8)
    if not 2 <= length <= limit:
        raise ModelFileError(f"{path}: a header of {length} bytes in a file of {data.size}, limit {limit}; {_DAMAGED}")
    try:
        text = data[8 : 8 + length].tobytes().decode()
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path}: the header is not UTF-8 at byte {8 + error.start}; {_DAMAGED}") from error
    return parse_json(text, f"{path}: the header"), data[8 + length :]


def _checked(name: str, entry: Any, size: int, path: Path) -> tuple[str, tuple[int, ...], int, int]:
    """Return type, shape, begin and end of a tensor, all found to agree."""

    def error(message: str) -> ModelFileError:
        return ModelFileError(f"{path}: tensor {shown(name)} {message}")

    if not isinstance(entry, dict):
        raise error(f"is described by {shown(entry)}, not by an object; {_DAMAGED}")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _ELEMENT_BYTES:
        raise error(f"has type {shown(dtype)}; {', '.join(_ELEMENT_BYTES)} are supported: use a model in one of them")
    if not _are_counts(shape) or len(shape) > _MAX_DIMENSIONS or 0 in shape:
        raise error(f"has shape {shown(shape)}; up to {_MAX_DIMENSIONS} sizes above 0 are expected: {_DAMAGED}")
    if not _are_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= size:
        raise error(f"lies at {shown(offsets)} of the {size} bytes that the file has for tensors; {_DAMAGED}")
    begin, end = offsets
    wanted = math.prod(shape) * _ELEMENT_BYTES[dtype]
    if end - begin != wanted:
        raise error(f"has {end - begin} bytes, its type and shape need {shown(wanted)}; {_DAMAGED}")
    return dtype, tuple(shape), begin, end


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    """Whether this is a list of whole numbers from 0 to what a file can hold."""
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 1 << 63 for value in values)
