"""Typed, bounded reading of what model files say about themselves.

Nothing in a model file is trusted: a value of another type, out of range or not a number is an error that names the
field, the value, the limit and the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from reprlib import Repr
from typing import Any

from outrider.errors import ModelFileError

_MISSING: Any = object()
_SHORT = Repr()
_SHORT.maxstring = 80


def shown(value: object) -> str:
    """Return untrusted data as one short printable line."""
    text = " ".join(_SHORT.repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."


class Fields:
    """A view of a file's key-value data.

    Attributes:
        values: The data.
        path: The file it came from, for messages.
    """

    def __init__(self, values: Mapping[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self.values.get(key) is not None

    def error(self, message: str) -> ModelFileError:
        """Return an error about this file."""
        return ModelFileError(f"{self.path}: {message}")

    def integer(self, key: str, low: int, high: int, default: int = _MISSING) -> int:
        """Return an integer from ``low`` to ``high``."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self._wrong(key, value, f"an integer from {low} to {high}")
        return int(value)

    def number(self, key: str, low: float, high: float, default: float = _MISSING) -> float:
        """Return a finite number with ``low < value <= high``."""
        value = self._get(key, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not low < value <= high:  # NaN compares false
            raise self._wrong(key, value, f"a number above {low} and at most {high}")
        return float(value)

    def text(self, key: str, default: str = _MISSING) -> str:
        """Return a string."""
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def only(self, key: str, supported: Sequence[Any]) -> Any:
        """Return a value that must be one of those supported; the first of them when it is missing or null."""
        value = self._get(key, supported[0])
        if not any(type(value) is type(known) and value == known for known in supported):
            raise self.error(
                f"{key} {shown(value)} is not supported, only {', '.join(map(str, supported))}; use another model"
            )
        return value

    def section(self, key: str) -> Fields:
        """Return a nested object; an empty one when it is missing or null."""
        value = self._get(key, {})
        if not isinstance(value, Mapping):
            raise self._wrong(key, value, "an object")
        return Fields(value, self.path)

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            raise self.error(f"{key} is missing; fetch the file again or convert the model anew")
        return default

    def _wrong(self, key: str, value: object, wanted: str) -> ModelFileError:
        return self.error(f"{key} is {shown(value)}; it must be {wanted}: fetch the file again or convert it anew")
