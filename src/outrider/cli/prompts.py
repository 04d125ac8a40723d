"""Reading prompts from files and pipes."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from outrider.errors import UsageError

_MAX_BYTES = 1 << 28
_EXAMPLE = '{"prompt": "..."}'


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
    prompts: list[Prompt] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(read_text(name).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{_shown(name)} line {number}"
        prompt = _parse(line, where, number)
        first = lines.setdefault(prompt.id, number)
        if first != number:
            raise UsageError(f"{where} has the id {prompt.id!r}, and so has line {first}; give each an id of its own")
        prompts.append(prompt)
    if not prompts:
        raise UsageError(f"{_shown(name)} holds no prompts; give one JSON object a line: {_EXAMPLE}")
    return prompts


def read_text(name: str) -> str:
    """Return the whole text of a file, or of standard input for ``-``; without a byte order mark.

    Raises:
        UsageError: It cannot be read, is no ordinary file, has no end in sight, or is not UTF-8.
    """
    if not name:
        raise UsageError("the name of a file is empty; name one, or leave it out")
    if name == "-" and sys.stdin is None:
        raise UsageError("standard input is closed; pipe the text into it, or give it as an argument")
    try:
        return _read(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{_shown(name)} line {line} is not UTF-8 (byte {error.object[error.start]:#04x}); save it as UTF-8"
        ) from error
    except UsageError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{_shown(name)} cannot be read: {reason}; check the path") from error


def _read(name: str) -> bytes:
    if name != "-" and not S_ISREG(mode := Path(name).stat().st_mode) and not S_ISDIR(mode):
        raise UsageError(f"{name} is no ordinary file, so its end may never come; pipe it into -, standard input")
    with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise UsageError(f"{_shown(name)} holds more than {_MAX_BYTES >> 20} MiB; give a part of it")
    return data


def _shown(name: str) -> str:
    return "standard input" if name == "-" else name


def _parse(line: str, where: str, number: int) -> Prompt:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:  # ValueError: broken syntax, or a number of thousands of digits
        problem = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f"{where} is not JSON: {problem.split(';')[0]}; write {_EXAMPLE}") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("prompt"), str):
        raise UsageError(f'{where} has no text in the field "prompt"; write {_EXAMPLE}')
    for name in ("id", "family"):
        value = fields.get(name)
        if not isinstance(value, str | int | None) or isinstance(value, bool):
            raise UsageError(
                f'{where} has {json.dumps(value)[:80]} for "{name}"; it must be text, a whole number or null'
            )
    own_id, family = fields.get("id"), fields.get("family")
    return Prompt(fields["prompt"], str(number if own_id is None else own_id), None if family is None else str(family))
