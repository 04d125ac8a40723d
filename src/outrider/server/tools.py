"""Tools: what a model's template is told of them, and the calls in what the model says.

Models that were trained on tools in the Hermes way, Qwen2.5 among them, call one by ``<tool_call>``, a JSON object with
``name`` and ``arguments``, and ``</tool_call>``. Qwen2.5-Coder often puts the object between fences instead, as it does
with code; there it is a call only if it names a tool that was offered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outrider.models.chat_template import ChatTemplate

_BEGIN, _END = "<tool_call>", "</tool_call>"
_ENDS = {_BEGIN: _END, "```json\n": "```"}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool.

    Attributes:
        name: The function's.
        arguments: JSON, as OpenAI's API has it.
    """

    name: str
    arguments: str


def has_tools(template: ChatTemplate | None) -> bool:
    """Whether a model's template tells the model of tools, and of the calls that are read here."""
    return template is not None and "tools" in template.source and _BEGIN in template.source


def forced_call(tools: Sequence[Mapping[str, Any]], name: str | None) -> dict[str, Any]:
    """Return the ``response_format`` of an answer that is one call: of this tool, or of any."""
    functions = [tool["function"] for tool in tools if name in (None, tool["function"]["name"])]
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function["name"]},
                "arguments": function.get("parameters") or {"type": "object"},
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for function in functions
    ]
    schema = json.dumps(calls[0] if len(calls) == 1 else {"anyOf": calls})
    grammar = f'start: "{_BEGIN}\\n" call "\\n{_END}"\ncall: %json {schema}\n'
    return {"type": "grammar", "grammar": grammar}


class CallParser:
    """Finds calls in a text that comes in pieces. What is no call, though it begins like one, is text.

    Args:
        names: The tools that were offered.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = frozenset(names)
        self._held = ""  # what may become a mark, or a call that has begun
        self.num_calls = 0

    def feed(self, text: str) -> list[str | Call]:
        """Return the text and the calls that are certain now and were not before."""
        self._held += text
        found: list[str | Call] = []
        while self._held:
            begins = {place: mark for mark in _ENDS if (place := self._held.find(mark)) >= 0}
            if not begins:
                certain = len(self._held) - max(_begun(self._held, mark) for mark in _ENDS)
                found, self._held = [*found, self._held[:certain]], self._held[certain:]
                break
            begin = min(begins)
            mark = begins[begin]
            found, self._held = [*found, self._held[:begin]], self._held[begin:]
            end = self._held.find(_ENDS[mark], len(mark))
            if end < 0:
                break
            found.append(self._parsed(self._held[:end], mark) or self._held[: end + len(_ENDS[mark])])
            self._held = self._held[end + len(_ENDS[mark]) :]
        return [one for one in found if one != ""]

    def finish(self) -> list[str | Call]:
        """Return what was held back: no call, for it has not ended."""
        rest, self._held = self._held, ""
        return [rest] if rest else []

    def _parsed(self, text: str, mark: str) -> Call | None:
        try:
            call = json.loads(text[len(mark) :])
            name, arguments = call["name"], call.get("arguments", {})
            told = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
            (name + told).encode()  # a half of a surrogate pair can be spelled in JSON, but not sent
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        if not isinstance(name, str) or not isinstance(arguments, dict) or (mark != _BEGIN and name not in self._names):
            return None
        self.num_calls += 1
        return Call(name, told)


def _begun(text: str, mark: str) -> int:
    """Return the length of the longest end of a text that begins a mark."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if text.endswith(mark[:n])), 0)
