"""``response_format``: what an answer must look like, as OpenAI's API says it, and two kinds more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, NoReturn

from outrider.errors import UsageError

Kind = Literal["json_schema", "regex", "grammar"]
# Each type of format and the key that holds what it is about, if any.
_KEYS = {"text": None, "json_object": None, "json_schema": "json_schema", "regex": "regex", "grammar": "grammar"}
_SCHEMA_KEYS = frozenset({"name", "description", "schema", "strict"})


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
    if not isinstance(response_format, Mapping) or response_format.get("type") not in _KEYS:
        _refuse(f"is {response_format!r}; it must be a mapping whose type is one of {', '.join(_KEYS)}")
    kind = response_format["type"]
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
        return GrammarSource(kind, _schema_text(body))
    if not isinstance(body, str) or not body:
        _refuse(f"has {body!r} for {key}; it must be a text")
    return GrammarSource(kind, body)


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


def _refuse(problem: str) -> NoReturn:
    raise UsageError(f"response_format {problem}")
