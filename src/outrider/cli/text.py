"""Text of others on its way to a terminal: from models, files, paths and arguments."""

from __future__ import annotations

import re
import sys

# What a terminal would obey.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """Return a text with U+FFFD for every control character but tab and newline."""
    return _CONTROLS.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return a text as one harmless line."""
    return harmless(" ".join(re.split(r"[ \t\r\n]+", text.strip())))


def write_line(text: str) -> None:
    """Write a line to stdout: as it is for programs, harmless for a terminal."""
    sys.stdout.write((harmless(text) if sys.stdout.isatty() else text) + "\n")
