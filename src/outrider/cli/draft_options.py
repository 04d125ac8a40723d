"""Draft options from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from outrider.cli.prompts import read_text
from outrider.errors import UsageError
from outrider.models.fields import shown

if TYPE_CHECKING:
    from outrider.drafters.compression import DraftOptions


def parse_draft_options(settings: Sequence[str]) -> DraftOptions | None:
    """Return the options that ``KEY=VALUE`` settings ask for, or None without any.

    Raises:
        UsageError: A setting is unknown, given twice, or has a value that is out of range.
    """
    from outrider.drafters.compression import DraftOptions

    known = [field.name for field in fields(DraftOptions)]
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if key not in known or not equals:
            near = "".join(f"; did you mean {match}=...?" for match in get_close_matches(key, known, n=1))
            raise UsageError(f"--draft-options is {shown(setting)}{near}; write KEY=VALUE with {', '.join(known)}")
        if key in values:
            raise UsageError(f"--draft-options has {key} twice; give it once")
        values[key] = _parse(key, value)
    try:
        return DraftOptions(**values) if values else None
    except UsageError as error:
        raise UsageError(f"--draft-options {error}") from error


def _parse(key: str, value: str) -> object:
    if key == "text":
        return read_text(value)
    if key == "weights":
        return value
    if value == "all":
        return None
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else value
