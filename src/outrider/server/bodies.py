"""JSON from strangers. Only what means the same to every reader of JSON is let in, and nothing that is huge."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from outrider.models.fields import shown
from outrider.server.problems import ApiError

_DEEPEST = 64
_LARGEST = 2**64  # of whole numbers: seeds go up to there


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a body.

    Raises:
        ApiError: It is not UTF-8 or not JSON; a key stands twice in an object; a number is not finite or beyond 64
            bits; a text holds half a surrogate pair; it is nested more than 64 deep; or it is no object.
    """
    try:
        document = json.loads(
            body.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant, parse_int=_parse_int
        )
    except UnicodeDecodeError as error:
        raise ApiError(400, f"the body is not UTF-8: byte {error.start} cannot stand there") from None
    except RecursionError:
        raise ApiError(400, f"the body is nested more than {_DEEPEST} deep") from None
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    _check(document)
    if not isinstance(document, dict):
        raise ApiError(400, f"the body is {shown(document)}; it must be a JSON object")
    return document


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ApiError(400, f"the key {shown(key)} stands twice in one object; give it once", param=key[:100])
            seen.add(key)
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ApiError(400, f"{name} is not a number in JSON")


def _parse_int(text: str) -> int:
    if len(text) > 21 or abs(int(text)) > _LARGEST:
        raise ApiError(400, f"{shown(text)} is a number beyond 64 bits")
    return int(text)


def _check(document: Any) -> None:
    level = [document]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str):
                if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
                    raise ApiError(400, f"{shown(value)} holds half a surrogate pair, which is no character")
            elif isinstance(value, float) and not math.isfinite(value):
                raise ApiError(400, "a number is too large to be told from infinity")
        level = below
    if level:
        raise ApiError(400, f"the body is nested more than {_DEEPEST} deep")
