"""What a request may say: OpenAI's fields, vLLM's for sampling, and our own for speculation.

A field that is missing here is refused by name: an API that drops what it does not know answers another question.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.models.fields import shown
from outrider.server.problems import ApiError

Rule = Literal["auto", "token", "block", "coupled"]
Texts = Annotated[list[str], Field(max_length=64)]
# One wrong element is enough to be told of: an error for each of a million would take gigabytes.
Ids = Annotated[list[int], Field(max_length=1 << 20, fail_fast=True)]
_S = TypeVar("_S", bound="Schema")


class Schema(BaseModel):
    """An object of a request: no field but those declared, and no value of another type in disguise."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Speculation(Schema):
    """What a request wants of speculation. Its text does not depend on it, unless ``rule`` makes it another sample."""

    enabled: bool = Field(default=True, description="False: decode plainly.")
    num_speculative_tokens: int | None = Field(
        None, ge=0, description="The most draft tokens a round; the server's limit holds."
    )
    drafter: str | None = Field(None, description="Draft with this one only; see /outrider/info.")
    rule: Rule | None = Field(None, description="How drafts of sampled text are verified.")


class Part(Schema):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


class FunctionCall(Schema):
    """A call of a function in an assistant's message."""

    name: str
    arguments: str


class ToolCall(Schema):
    """A tool call in an assistant's message."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Schema):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(max_length=4096)] | None = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=256)] | None = None
    tool_call_id: str | None = None
    # What a client sends back of an assistant's message; all of it means nothing.
    refusal: None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None


class Function(Schema):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Schema):
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function


Messages = Annotated[list[Message], Field(min_length=1, max_length=1 << 16, fail_fast=True)]
Tools = Annotated[list[Tool], Field(max_length=128)]


class NamedFunction(Schema):
    """The function to call."""

    name: str


class NamedTool(Schema):
    """The tool to call."""

    type: Literal["function"]
    function: NamedFunction


class Prediction(Schema):
    """Text that the answer is expected to resemble."""

    type: Literal["content"]
    content: str | Annotated[list[Part], Field(max_length=4096)]


class StreamOptions(Schema):
    """What a stream says beside the text."""

    include_usage: bool = False


class Generation(Schema):
    """What both kinds of request have in common. None is the default everywhere."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = Field(None, ge=1, le=128)
    temperature: float | None = Field(None, description="1 by default, as in OpenAI's API; 0 is greedy.")
    top_p: float | None = None
    top_k: int | None = Field(None, description="0 and -1 are off, as in vLLM.")
    min_p: float | None = None
    typical_p: float | None = None
    max_tokens: int | None = Field(None, ge=1)
    min_tokens: int | None = None
    stop: str | Texts | None = None
    stop_token_ids: Ids | None = None
    ignore_eos: bool | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=1 << 16)] | None = None
    bad_words: Annotated[list[str], Field(max_length=1024)] | None = None
    allowed_token_ids: Ids | None = None
    prompt_logprobs: int | None = None
    response_format: dict[str, Any] | None = None
    prediction: Prediction | None = None
    speculation: Speculation | None = None
    return_token_details: bool | None = Field(None, description="Tell of each token how it came about.")
    user: str | None = Field(None, description="Taken and not used.")


class ChatRequest(Generation):
    """``POST /v1/chat/completions``."""

    messages: Messages
    max_completion_tokens: int | None = Field(None, ge=1, description="The same as max_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: Tools | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    store: Literal[False] | None = None
    metadata: Annotated[dict[str, str], Field(max_length=64)] | None = Field(None, description="Taken and not used.")


class CompletionRequest(Generation):
    """``POST /v1/completions``. ``max_tokens`` is 16 by default, as in OpenAI's API."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    )
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None


class TokenizeRequest(Schema):
    """``POST /tokenize``: of a text, or of messages in the model's chat template."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    tools: Tools | None = None


class DetokenizeRequest(Schema):
    """``POST /detokenize``."""

    model: str | None = None
    tokens: Ids


def parse(schema: type[_S], document: dict[str, Any]) -> _S:
    """Return a document as what it should be.

    Raises:
        ApiError: It is not; ``param`` names the field.
    """
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        # Where a value may be of several types, the alternative that went furthest is what was meant.
        worst = max(
            error.errors(include_url=False), key=lambda one: (one["type"] == "extra_forbidden", len(one["loc"]))
        )
    param = _path(document, worst["loc"])
    if worst["type"] == "extra_forbidden":
        raise ApiError(400, f"the field {param} is not known here; leave it out", param=param, code="unknown_field")
    if worst["type"] == "missing":
        raise ApiError(400, f"the field {param} is missing", param=param)
    raise ApiError(400, f"{param} is {shown(worst['input'])}: {worst['msg']}", param=param)


def _path(document: Any, places: tuple[int | str, ...]) -> str:
    """Return where something is in a document, without the names of the types that were tried."""
    path, value = "", document
    for number, place in enumerate(places):
        is_last = number == len(places) - 1
        if isinstance(value, dict) and (place in value or (is_last and isinstance(place, str))):
            path += f".{place}" if path else str(place)
            value = value.get(place)
        elif isinstance(value, list) and isinstance(place, int) and place < len(value):
            path += f"[{place}]"
            value = value[place]
    return path[:200] or "the body"
