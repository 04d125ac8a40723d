"""Reading JSON of unknown origin strictly: no duplicate names, no numbers that are none, no sizes without end."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

from outrider.errors import UsageError

MAX_BYTES = 16 << 20
_MAX_DEPTH = 32


def read_document(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    Args:
        path: Of the file.
        what: It ought to be, for messages.

    Raises:
        UsageError: It cannot be read, is too large, or is not one JSON object.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {reason}; check the path") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES} bytes; it is no {what}")
    return parse_document(data, str(path), what)


def parse_document(data: bytes, where: str, what: str) -> dict[str, Any]:
    """Return the JSON object in some bytes; errors are those of :func:`read_document`."""
    try:
        document = json.loads(
            data.decode(),
            parse_constant=_refuse_constant,
            parse_float=_number,
            parse_int=_whole,
            object_pairs_hook=_unique,
        )
        _check_depth(document, _MAX_DEPTH)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no {what}: {str(error) or 'it is nested too deeply'}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{where} is no {what}: it holds {type(document).__name__}, not an object")
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _whole(text: str) -> int:
    if len(text) > 20:  # of 64 bits, as seeds have
        raise ValueError(f"{text[:40]} is too large a number")
    return int(text)


def _check_depth(value: object, depth: int) -> None:
    if isinstance(value, dict | list):
        if depth == 0:
            raise ValueError("it is nested too deeply")
        for one in value.values() if isinstance(value, dict) else value:
            _check_depth(one, depth - 1)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in an object")
    return fields
