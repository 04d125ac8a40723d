"""From a request to what the engine is asked. Slow for long prompts and large grammars: not for the event loop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from outrider.engine.llm import LLM
from outrider.engine.sequence import Request, SpeculationParams
from outrider.errors import ContextLengthError, ModelFileError, UsageError
from outrider.sampling import SamplingParams
from outrider.server.bodies import parse_object
from outrider.server.problems import ApiError
from outrider.server.schemas import ChatRequest, CompletionRequest, Generation, Message, NamedTool, Part
from outrider.server.tools import forced_call, has_tools

_DETAILS_TOP = 5  # alternatives that token details show where nobody says how many
# Fields that mean the same here as in SamplingParams.
_SAME = (
    *("top_p", "min_p", "typical_p", "min_tokens", "ignore_eos", "seed", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "bad_words", "allowed_token_ids", "prompt_logprobs", "response_format", "n"),
    "stop_token_ids",
)


@dataclass(frozen=True, slots=True)
class Job:
    """What the engine is asked, and what the reply needs to know of it.

    Attributes:
        requests: ``n`` for each prompt.
        num_prompt_tokens: Of all prompts.
        prompts: The text of each prompt, if it is to be echoed.
        tools: The names of those of which calls are looked for in the answers.
    """

    requests: list[Request]
    num_prompt_tokens: int
    prompts: Sequence[str] = ()
    tools: Sequence[str] = ()


def chat_job(llm: LLM, asked: ChatRequest) -> Job:
    """Return what a chat request comes to.

    Raises:
        ApiError: It cannot be honoured.
    """
    tools = [tool.model_dump(exclude_none=True) for tool in asked.tools or ()]
    if tools and not has_tools(llm.model.chat_template):
        raise ApiError(400, f"tools is given, but the chat template of {llm.model.name} has none", param="tools")
    if asked.tool_choice not in (None, "none", "auto") and not tools:
        raise ApiError(400, "tool_choice asks for a call, but there are no tools", param="tool_choice")
    if asked.tool_choice == "none":
        tools = []
    if asked.max_tokens is not None and asked.max_completion_tokens is not None:
        raise ApiError(400, "max_tokens and max_completion_tokens mean the same; give one", param="max_tokens")
    if asked.top_logprobs is not None and not asked.logprobs:
        raise ApiError(400, "top_logprobs is given without logprobs: true", param="top_logprobs")
    settings = _forced(asked, tools)
    if asked.logprobs or (asked.return_token_details and asked.logprobs is None):
        settings["logprobs"] = asked.top_logprobs or (0 if asked.logprobs else _DETAILS_TOP)
    with naming("messages"):
        prompt_ids = llm.encode(plain_messages(asked.messages), tools=tools or None)
    max_tokens = asked.max_tokens or asked.max_completion_tokens
    params = _params(llm, asked, max_tokens or llm.model.backend.max_length, settings)
    return Job(
        _requests(llm, asked, [prompt_ids], params), len(prompt_ids), tools=[tool["function"]["name"] for tool in tools]
    )


def completion_job(llm: LLM, asked: CompletionRequest) -> Job:
    """Return what a completion request comes to.

    Raises:
        ApiError: It cannot be honoured.
    """
    prompts = as_prompts(asked.prompt)
    if asked.stream and asked.echo and asked.logprobs is not None:
        raise ApiError(400, "echo with logprobs cannot be streamed; leave one of the three out", param="echo")
    settings: dict[str, Any] = {"logprobs": asked.logprobs}
    if asked.return_token_details and asked.logprobs is None:
        settings["logprobs"] = _DETAILS_TOP
    if asked.echo and asked.logprobs is not None and asked.prompt_logprobs is None:
        settings["prompt_logprobs"] = asked.logprobs
    params = _params(llm, asked, asked.max_tokens or 16, settings)
    with naming("prompt"):
        each = [llm.encode(one, chat=False) if isinstance(one, str) else one for one in prompts]
        decode = llm.model.tokenizer.decode
        echoed = [one if isinstance(one, str) else decode(one) for one in prompts] if asked.echo else []
    return Job(_requests(llm, asked, each, params), sum(map(len, each)), echoed)


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Turn errors about what was asked into the client's, about this field unless they name another."""
    try:
        yield
    except ContextLengthError as error:
        raise ApiError(400, str(error), param=field, code="context_length_exceeded") from error
    except (UsageError, ModelFileError) as error:  # a template that fails does so for what it was given
        named = re.match(r"(?:the )?(\w+)( of [^ ]+)? (is|has|of|needs|excludes)\b", str(error))
        known = {*Generation.model_fields, "logprobs", "drafter", "num_speculative_tokens", "prompt"}
        param = named[1] if named and named[1] in known else field
        param = f"speculation.{param}" if param in ("drafter", "num_speculative_tokens") else param
        raise ApiError(400, str(error).removesuffix("; use --no-chat"), param=param) from error


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages as chat templates know them.

    Raises:
        ApiError: The arguments of a call are no JSON object.
    """
    return [_plain(message, place) for place, message in enumerate(messages)]


def as_prompts(prompt: Any) -> list[Any]:
    """Return the prompts of a completion, each text or token ids."""
    return [prompt] if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int) else prompt


def _forced(asked: ChatRequest, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the settings that make the answer a call, where the client insists on one."""
    choice = asked.tool_choice
    if choice in (None, "none", "auto"):
        return {}
    if asked.response_format is not None:
        problem = "response_format and a tool_choice that insists on a call exclude each other"
        raise ApiError(400, problem, param="tool_choice")
    name = choice.function.name if isinstance(choice, NamedTool) else None
    if name is not None and name not in {tool["function"]["name"] for tool in tools}:
        raise ApiError(400, f"tool_choice names {name!r}, which is none of the tools", param="tool_choice")
    return {"response_format": forced_call(tools, name)}


def _params(llm: LLM, asked: Generation, max_tokens: int, settings: dict[str, Any]) -> SamplingParams:
    limit = llm.model.backend.max_length
    if asked.stream_options is not None and not asked.stream:
        raise ApiError(400, "stream_options is given without stream: true", param="stream_options")
    if asked.stream and asked.prompt_logprobs is not None:
        raise ApiError(400, "prompt_logprobs cannot be streamed; leave stream out", param="prompt_logprobs")
    if max_tokens > limit:
        raise ApiError(400, f"max_tokens is {max_tokens}; the context holds {limit} tokens", param="max_tokens")
    given = {name: getattr(asked, name) for name in _SAME if getattr(asked, name) is not None}
    stop = [asked.stop] if isinstance(asked.stop, str) else asked.stop
    with naming("logit_bias"):
        return SamplingParams(
            **{
                "temperature": 1.0 if asked.temperature is None else asked.temperature,
                "top_k": None if asked.top_k in (0, -1) else asked.top_k,
                "stop": stop or (),
                "logit_bias": _biases(asked.logit_bias or {}),
                "max_tokens": max_tokens,
                **given,
                **settings,
            }
        )


def _biases(biases: dict[str, float]) -> dict[int, float]:
    for token_id in biases:
        if not (token_id.isascii() and token_id.isdigit() and len(token_id) < 10):
            raise ApiError(400, f"logit_bias has the key {token_id!r}; it must be a token id", param="logit_bias")
    return {int(token_id): bias for token_id, bias in biases.items()}


def _requests(llm: LLM, asked: Generation, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Request]:
    prediction = None if asked.prediction is None else _text(asked.prediction.content)
    wish = asked.speculation
    speculation = None
    if wish is not None:
        k = wish.num_speculative_tokens if wish.enabled else 0
        k = None if k is None else min(k, llm.num_speculative_tokens)
        speculation = SpeculationParams(k, wish.drafter, wish.rule)
    suspect = "prediction" if prediction is not None else "prompt"
    if params.response_format is not None:
        suspect = "response_format" if asked.response_format is not None else "tools"
    requests = []
    for prompt_ids in prompts:
        with naming(suspect):
            requests += llm.requests(prompt_ids, params, prediction=prediction, speculation=speculation)
    return requests


def _text(content: str | Sequence[Part]) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def _plain(message: Message, place: int) -> dict[str, Any]:
    """Return a message as chat templates know them: text, and the arguments of calls as objects."""
    role = "system" if message.role == "developer" else message.role
    content = None if message.content is None else _text(message.content)
    plain: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        plain["name"] = message.name
    if message.tool_call_id is not None:
        plain["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        plain["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments, place)},
            }
            for call in message.tool_calls
        ]
        plain["content"] = content or ""
    return plain


def _arguments(text: str, place: int) -> dict[str, Any]:
    try:
        return parse_object((text or "{}").encode())
    except ApiError as error:
        problem = f"the arguments of a call must be a JSON object: {error.message.replace('the body', 'it')}"
        raise ApiError(400, problem, param=f"messages[{place}].tool_calls") from error
