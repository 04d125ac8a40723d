"""``response_format``: what an answer must look like, as OpenAI's API says it, and two kinds more."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from math import lcm
from typing import Any, Literal, NamedTuple, NoReturn, TypeGuard

from outrider.errors import UsageError

Kind = Literal["json_schema", "regex", "grammar"]
# Each type of format and the key that holds what it is about, if any.
_KEYS = {"text": None, "json_object": None, "json_schema": "json_schema", "regex": "regex", "grammar": "grammar"}
_SCHEMA_KEYS = frozenset({"name", "description", "schema", "strict"})
# llguidance steps through the remainders of a number without a limit: 15 us and 400 bytes for each.
_MAX_REMAINDERS = 100_000
_MULTIPLE = re.compile(r'"multipleOf"\s*:\s*(-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)')
_ESCAPE = re.compile(r"\\u00([0-7][0-9a-fA-F])")


class GrammarSource(NamedTuple):
    """What a grammar is compiled from: a JSON schema, a regular expression, or a grammar in llguidance's Lark."""

    kind: Kind
    text: str


def grammar_source(response_format: object) -> GrammarSource | None:
    """Return the grammar that a ``response_format`` asks for, None if any text will do.

    ``{"type": "text"}``, ``{"type": "json_object"}``, ``{"type": "json_schema", "json_schema": {"schema": {...}}}``,
    ``{"type": "regex", "regex": "..."}``, ``{"type": "grammar", "grammar": "start: ..."}``.

    Raises:
        UsageError: It is none of these.
    """
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if not isinstance(response_format, Mapping) or not isinstance(kind, str) or kind not in _KEYS:
        _refuse(f"is {response_format!r}; it must be a mapping whose type is one of {', '.join(_KEYS)}")
    key = _KEYS[kind]
    unknown = sorted(set(map(str, response_format)) - {"type", key})
    if unknown:
        _refuse(f"of type {kind!r} does not know {', '.join(unknown)}; it has {key or 'nothing'} beside its type")
    if kind == "text":
        return None
    if kind == "json_object":
        return GrammarSource("json_schema", '{"type": "object"}')
    body = response_format.get(key)
    if kind == "json_schema":
        return GrammarSource("json_schema", _few_remainders(_schema_text(body)))
    if not is_text(body):
        _refuse(f"has {body!r} for {key}; it must be a text, and not empty")
    if kind == "regex":
        return GrammarSource("regex", body)
    return GrammarSource("grammar", _few_remainders(body))  # which may hold schemas


def is_text(value: object) -> TypeGuard[str]:
    """Return whether this is Unicode text, not empty and without lone surrogates."""
    return isinstance(value, str) and value != "" and not any("\ud800" <= character <= "\udfff" for character in value)


def _schema_text(body: Any) -> str:
    if not isinstance(body, Mapping) or "schema" not in body:
        _refuse(f'has {body!r} for json_schema; it must be a mapping with "schema"')
    unknown = sorted(set(map(str, body)) - _SCHEMA_KEYS)
    if unknown:
        _refuse(f"has a json_schema with {', '.join(unknown)}; it knows {', '.join(sorted(_SCHEMA_KEYS))}")
    try:
        return json.dumps(body["schema"], allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(f"has a schema that is not JSON: {error}")


def _few_remainders(text: str) -> str:
    """Return a text with JSON schemas if what they say of ``multipleOf`` is soon looked through.

    Several may be asked of one number, so the least number that is a multiple of all counts, for each of them.
    """
    plain = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)  # a key may be written so
    found, multiple = _MULTIPLE.findall(plain), 1
    for number in found:
        multiple = lcm(multiple, _without_point(number))
        if multiple * len(found) > _MAX_REMAINDERS:
            _refuse(
                f"asks for multiples of {number}, among {len(found)} such wishes, which takes too long to follow; "
                f"their least common multiple, points left out, times their number may be {_MAX_REMAINDERS}"
            )
    return text


def _without_point(number: str) -> int:
    """Return 25 for 0.25, or something as much too large for what is; 1 for 0."""
    _, digits, exponent = Decimal(number).normalize().as_tuple()
    return max(1, int("".join(map(str, digits)))) * int(10 ** min(max(int(exponent), 0), 20))


def _refuse(problem: str) -> NoReturn:
    raise UsageError(f"response_format {problem}")
