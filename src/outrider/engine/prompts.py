"""What a caller gives to be answered, checked once: what is wrong is named as the caller gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from typing import TypeAlias, TypeGuard, cast

from outrider.engine.rules import parse_rule
from outrider.engine.sequence import SpeculationParams
from outrider.errors import ContextLengthError, UsageError
from outrider.models.chat_template import Message
from outrider.models.fields import shown
from outrider.models.tokenizer import check_unicode
from outrider.sampling import SamplingParams

# Text, or the messages of a chat: each a mapping with "role" and "content".
Prompt: TypeAlias = str | Sequence[Message]

# Of a text that is encoded in part: most tokenizers take three or four.
_LETTERS_A_TOKEN = 8
_MESSAGE = 'a message is a mapping with text for "role" and text, or a list of parts, for "content"'


def as_prompts(prompts: object) -> list[Prompt]:
    """Return the prompts of a call: one alone is text or messages, and messages are mappings.

    Raises:
        UsageError: They are neither a prompt nor a list of prompts. The prompts themselves are not looked at.
    """
    if isinstance(prompts, str):
        return [prompts]
    if not _is_list(prompts):
        raise UsageError(f"prompts is {shown(prompts)}; it must be text, a list of messages, or a list of such prompts")
    if prompts and isinstance(prompts[0], Mapping):
        return [cast(Prompt, prompts)]
    return [cast(Prompt, prompt) for prompt in prompts]


def as_params(params: object, num_prompts: int) -> list[SamplingParams]:
    """Return the params of each prompt; one alone is for all of them, and None is greedy.

    Raises:
        UsageError: They are something else, or not as many as there are prompts.
    """
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if not _is_list(params):
        raise UsageError(f"params is {shown(params)}; it must be SamplingParams, a list of them, or None")
    for index, one in enumerate(params):
        if not isinstance(one, SamplingParams):
            raise UsageError(f"params[{index}] is {shown(one)}; it must be SamplingParams")
    if len(params) != num_prompts:
        raise UsageError(f"there are {len(params)} params for {num_prompts} prompts; give one for all, or one for each")
    return [cast(SamplingParams, one) for one in params]


def as_predictions(predictions: object, num_prompts: int) -> list[str | None]:
    """Return what is predicted of the answer to each prompt; one text is for the only prompt.

    Raises:
        UsageError: It is neither text, nor a list of texts or None, one for each prompt; or it is not Unicode.
    """
    if predictions is None:
        return [None] * num_prompts
    each = [predictions] if isinstance(predictions, str) else predictions
    if not _is_list(each):
        raise UsageError(f"prediction is {shown(each)}; it must be text, or a list of text or None, or None")
    if len(each) != num_prompts:
        raise UsageError(f"there are {len(each)} predictions for {num_prompts} prompts; give one for each, or None")
    for text in each:
        if text is not None and not isinstance(text, str):
            raise UsageError(f"a prediction is {shown(text)}; it must be text or None")
        if text:
            check_unicode(text, "the prediction")
    return [cast(str | None, text) for text in each]


def as_wish(wish: SpeculationParams, limit: int, drafters: Sequence[str]) -> SpeculationParams:
    """Return what a request wants of speculation, with its drafter named in full; None for the only one.

    Args:
        wish: As the caller has it.
        limit: The most draft tokens of a round that the engine was made for.
        drafters: The names of what drafts in it.

    Raises:
        UsageError: It cannot be honoured.
    """
    if wish.num_speculative_tokens is not None:
        hint = f"{limit} is what the engine was made for" if limit else "speculation is off"
        check_whole("num_speculative_tokens", wish.num_speculative_tokens, 0, limit, hint)
    if wish.rule is not None:
        parse_rule(wish.rule)
    if wish.drafter is None:
        return wish
    named = {short: name for name in drafters for short in (name, name.split(" (")[0])}
    if wish.drafter not in named:
        known = f"it must be one of {', '.join(drafters)}" if named else "there is none; leave it out"
        raise UsageError(f"drafter is {shown(wish.drafter)}; {known}")
    return replace(wish, drafter=named[wish.drafter] if len(drafters) > 1 else None)


def encode_beginning(encode: Callable[[str], list[int]], text: str, num_tokens: int) -> list[int]:
    """Return the first tokens of a text that may be far longer, without encoding much more of it than they take.

    They are those of the whole text, unless a tokenizer makes one word of more than the text that is encoded.
    """
    length = _LETTERS_A_TOKEN * num_tokens
    while True:
        token_ids = encode(text[:length])
        if length >= len(text) or len(token_ids) > 2 * num_tokens:
            return token_ids[:num_tokens]
        length *= 2


def check_prompt(prompt: object) -> None:
    """Check that a prompt is text or messages, not empty, and Unicode.

    Raises:
        UsageError: It is not.
    """
    if isinstance(prompt, str):
        check_unicode(prompt, "the prompt")
    elif not _is_list(prompt):
        raise UsageError(f"the prompt is {shown(prompt)}; it must be text, or a list of messages")
    else:
        for index, message in enumerate(prompt):
            _check_message(f"message {index}", message)
    if not prompt:
        raise UsageError("the prompt is empty; give at least one character")


def check_length(token_ids: Sequence[int], limit: int, context: int) -> None:
    """Check that a prompt leaves room for an answer.

    Args:
        token_ids: The prompt's.
        limit: How many tokens a sequence has room for.
        context: How many it might have at most.

    Raises:
        ContextLengthError: It does not.
    """
    if len(token_ids) >= limit:
        fix = f"or raise ctx_size, up to {context}" if limit < context else "or split it"
        raise ContextLengthError(
            f"the prompt has {len(token_ids)} tokens and the context holds {limit}, one of them for the answer; "
            f"shorten the prompt {fix}"
        )


def check_whole(name: str, value: object, low: int, high: int | None, hint: str) -> None:
    """Check that a value is a whole number within limits; None for no upper one.

    Raises:
        UsageError: It is not.
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if is_whole and low <= cast(int, value) and (high is None or cast(int, value) <= high):
        return
    limit = f"at least {low}" if high is None else f"from {low} to {high}"
    raise UsageError(f"{name} is {shown(value)}; it must be {'' if is_whole else 'a whole number '}{limit} ({hint})")


@contextmanager
def naming(prompt: str | None) -> Iterator[None]:
    """Let a usage error say which of many prompts it is about; None for the only one."""
    try:
        yield
    except UsageError as error:
        if prompt is None:
            raise
        raise type(error)(f"{prompt}: {error}") from error


def _check_message(where: str, message: object) -> None:
    if not isinstance(message, Mapping):
        raise UsageError(f"{where} is {shown(message)}; {_MESSAGE}")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise UsageError(f'{where} has {shown(role)} for "role"; {_MESSAGE}')
    if isinstance(content, str):
        check_unicode(content, f"{where}'s content")
    elif not _is_list(content) and not (content is None and message.get("tool_calls")):
        raise UsageError(f'{where} has {shown(content)} for "content"; {_MESSAGE}')


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview)
