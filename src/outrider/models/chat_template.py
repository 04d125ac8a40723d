"""Turns the messages of a chat into the text that the model was trained on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from jinja2.exceptions import TemplateError

from outrider.errors import ModelFileError, UsageError
from outrider.models.template_sandbox import BudgetedEnvironment, TemplateLimitError

Message = Mapping[str, Any]

_MAX_SOURCE = 1 << 20  # characters
_BUDGET = 100_000_000  # of BudgetedEnvironment: room for prompts of millions of characters, spent within seconds


class _RaisedByTemplateError(TemplateError):
    """What a template says of messages that it cannot render."""


class ChatTemplate:
    """A model's own Jinja template, run in a sandbox and on a budget.

    Attributes:
        source: The template.
    """

    def __init__(
        self, source: str, *, bos_token: str, eos_token: str, now: Callable[[], datetime] = datetime.now
    ) -> None:
        """Compile a template.

        Args:
            source: The template.
            bos_token: The spelling of the token that begins a text.
            eos_token: The spelling of the token that ends one.
            now: The clock that ``strftime_now`` reads.

        Raises:
            ModelFileError: It is too long or is not a template.
        """
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._lock = threading.Lock()  # the budget belongs to one rendering at a time
        if len(source) > _MAX_SOURCE:
            raise ModelFileError(f"the chat template has {len(source)} characters, the limit is {_MAX_SOURCE}")
        self._environment = BudgetedEnvironment({"raise_exception": _raise, "strftime_now": _Clock(now)})
        self._environment.budget = _BUDGET
        try:
            self._template = self._environment.from_string(source)
        except (TemplateError, SyntaxError, RecursionError, MemoryError) as error:
            raise ModelFileError(f"the chat template is not valid: {_one_line(error)}; use --no-chat") from error

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True, tools: Sequence[Any] | None = None
    ) -> str:
        """Return the text of a chat.

        Args:
            messages: Each with ``role`` and ``content``, and whatever else the template knows.
            add_generation_prompt: End with the beginning of the assistant's turn.
            tools: JSON schemas of functions that the model may call.

        Raises:
            UsageError: The template says that it cannot render such messages.
            ModelFileError: The template fails or does too much.
        """
        names = {**self._tokens, "messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        with self._lock:
            self._environment.budget = _BUDGET
            try:
                return self._template.render(names)
            except _RaisedByTemplateError as error:
                raise UsageError(f"the model's chat template refuses the messages: {_one_line(error)}") from error
            except TemplateLimitError as error:
                raise ModelFileError(f"the chat template was stopped: {_one_line(error)}; use --no-chat") from error
            except Exception as error:  # whatever the template's own code does wrong
                raise ModelFileError(f"the chat template failed: {_one_line(error)}; use --no-chat") from error


class _Clock:
    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now

    def __call__(self, layout: str) -> str:
        # A width, as in %999999999d, would ask the C library for that much memory.
        if len(layout) > 100 or re.search(r"%[^A-Za-z%]*\d", layout):
            raise TemplateError(f"strftime_now is asked for {layout[:40]!r}; plain formats are supported")
        return self._now().strftime(layout)


def _raise(message: str) -> None:
    raise _RaisedByTemplateError(message)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return "".join(char if char.isprintable() else "?" for char in text[:200])
