"""Turns messages or a plain prompt into token ids, so that no message can pass for the model's own control tokens.

The template's control tokens are read as such; what looks like one in a message is taken literally. Before rendering,
every control token spelled in a message is broken by a character that occurs nowhere else; the tokenizer reads the
control tokens that are left, which are the template's, and then erases that character. So the template sees each
message as it is but for that character, and the model sees exactly the text that was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from outrider.errors import UsageError
from outrider.models.chat_template import ChatTemplate, Message
from outrider.models.tokenizer import SpecialSpellings, Tokenizer

# Unicode keeps these for a program's internal use; they are no characters and belong in no text.
_NONCHARACTERS = range(0xFDD0, 0xFDF0)


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Any] | None = None,
) -> list[int]:
    """Return the token ids of the prompt that a chat amounts to.

    Args:
        tokenizer: The model's.
        template: The model's; with ``None`` the contents are joined by blank lines and nothing else is added.
        messages: Each with ``role`` and ``content``.
        add_generation_prompt: End with the beginning of the assistant's turn.
        tools: JSON schemas of functions that the model may call.

    Raises:
        UsageError: There are no messages, or the template refuses them, or they are not Unicode.
        ModelFileError: The template fails or does too much.
    """
    if not messages:
        raise UsageError("there are 0 messages; give at least 1")
    if template is None:
        text = "\n\n".join(str(message.get("content") or "") for message in messages)
        return tokenizer.encode(text)
    breaker = _unused_character(template.source, messages, tools)
    spellings = tokenizer.special_spellings
    text = template.render(
        _broken(messages, spellings, breaker),
        add_generation_prompt=add_generation_prompt,
        tools=_broken(tools, spellings, breaker),
    )
    # The template alone says where bos goes.
    return tokenizer.encode(text, add_special=False, parse_special=True, erase=breaker if breaker in text else "")


def _broken(value: Any, spellings: SpecialSpellings, breaker: str) -> Any:
    """Return messages with the breaker in every control token, and in the beginning of one at the end of a text.

    Raises:
        UsageError: A text holds a control token of one character.
    """
    if isinstance(value, str):
        for char in spellings.single_characters:
            if char in value:
                raise UsageError(f"{char!r} is a control token of this model and cannot be sent as text; remove it")
        cuts = [start + 1 for start in spellings.starts(value)]
        return breaker.join(value[start:end] for start, end in pairwise([0, *cuts, len(value)]))
    if isinstance(value, Mapping):
        return {_broken(k, spellings, breaker): _broken(v, spellings, breaker) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_broken(item, spellings, breaker) for item in value]
    return value


def _unused_character(*values: Any) -> str:
    texts = list(_strings(values))
    for char in map(chr, _NONCHARACTERS):
        if not any(char in text for text in texts):
            return char
    raise UsageError("the messages hold every noncharacter of Unicode; remove those from U+FDD0 to U+FDEF")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings(tuple(value.items()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
