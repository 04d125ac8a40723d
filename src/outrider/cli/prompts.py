"""Reading prompts from files and pipes."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from outrider.errors import UsageError


@dataclass(frozen=True, slots=True)
class Prompt:
    """One line of a file of prompts."""

    text: str
    id: str
    family: str | None = None


def read_prompts(name: str) -> list[Prompt]:
    """Read JSON lines with the fields ``prompt`` and, if wanted, ``id`` and ``family``.

    Args:
        name: A path, or ``-`` for standard input.

    Raises:
        UsageError: The file cannot be read, or a line is not what is asked for; the message names the line.
    """
    prompts = [
        _parse(line, f"{name} line {number}", number)
        for number, line in enumerate(read_text(name).split("\n"), start=1)
        if line.strip()
    ]
    if not prompts:
        raise UsageError(f'{name} holds no prompts; give one JSON object a line: {{"prompt": "..."}}')
    return prompts


def read_text(name: str) -> str:
    """Return the whole text of a file, or of standard input for ``-``.

    Raises:
        UsageError: It cannot be read, or is not UTF-8.
    """
    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8: byte {error.object[error.start]:#04x} at {error.start}") from error


def _parse(line: str, where: str, number: int) -> Prompt:
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("prompt"), str):
        raise UsageError(f'{where} has no text in the field "prompt"; write {{"prompt": "..."}}')
    for name in ("id", "family"):
        if not isinstance(fields.get(name), str | int | None):
            raise UsageError(f'{where} has {fields[name]!r} for "{name}"; it must be text or missing')
    family = fields.get("family")
    return Prompt(fields["prompt"], str(fields.get("id", number)), None if family is None else str(family))
