"""Structured logs: a JSON object a line. What people write, and what the model says, stays out unless asked for."""

from __future__ import annotations

import json
import time
from typing import Any, TextIO


class Log:
    """Writes one line an event.

    Args:
        stream: Where to.
        with_text: Whether prompts and answers are written, too.
    """

    def __init__(self, stream: TextIO, *, with_text: bool = False) -> None:
        self._stream = stream
        self.with_text = with_text

    def write(self, event: str, **fields: Any) -> None:
        """Write a line: when, what, and the fields that are not None."""
        known = {name: value for name, value in fields.items() if value is not None}
        line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event, **known})
        self._stream.write(line + "\n")
        self._stream.flush()
