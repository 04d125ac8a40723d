"""Reads JSON and text files of bounded size, strictly."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from outrider.errors import ModelFileError

_MAX_BYTES = 1 << 24


def read_text(path: Path, max_bytes: int = _MAX_BYTES) -> str:
    """Return a UTF-8 file.

    Raises:
        ModelFileError: It cannot be read, is too large or is not UTF-8.
    """
    try:
        size = path.stat().st_size
        if not path.is_file() or size > max_bytes:
            raise ModelFileError(f"{path} has {size} bytes, the limit is {max_bytes}; fetch it again")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFileError(f"{path} cannot be read: {error}; fetch it again") from error


def parse_json(text: str, what: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ModelFileError: It is not JSON, not an object, nested without end, or names a key twice.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{what} is not valid JSON: {error}; fetch it again") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} holds a {type(value).__name__}, not a JSON object; fetch it again")
    return value


def read_json(path: Path, max_bytes: int = _MAX_BYTES) -> dict[str, Any]:
    """Return the object that a JSON file holds.

    Raises:
        ModelFileError: As :func:`read_text` and :func:`parse_json`.
    """
    return parse_json(read_text(path, max_bytes), str(path))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"key {twice[:80]!r} occurs twice")
    return result


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
