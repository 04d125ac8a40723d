"""What is asked of a server with the OpenAI API, and what it answers, read as hostile input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outrider.errors import EndpointError
from outrider.models.fields import shown


@dataclass(frozen=True, slots=True)
class Question:
    """One request for one answer. What is None is not sent.

    Attributes:
        prompt: Continued as it is, or sent as the only message of a chat where the server has nothing else.
        logprobs: How many of the most likely tokens to report at each place.
    """

    prompt: str
    max_tokens: int
    temperature: float = 1.0
    seed: int | None = None
    stop: str | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logprobs: int | None = None

    def body(self, *, chat: bool) -> dict[str, Any]:
        """Return the fields of the request, but for the model."""
        fields: dict[str, Any] = {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": 1.0,
            "seed": self.seed,
            "stop": self.stop,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
        }
        if chat:
            fields["messages"] = [{"role": "user", "content": self.prompt}]
            fields |= {"logprobs": True, "top_logprobs": self.logprobs} if self.logprobs is not None else {}
        else:
            fields |= {"prompt": self.prompt, "logprobs": self.logprobs}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Place:
    """One token of an answer with what the server says of it.

    Attributes:
        token: Its text, as the server spells it.
        logprob: Natural logarithm of its probability.
        top: The most likely tokens at its place and their log probabilities.
    """

    token: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        places: Token by token; None if the server gives no log probabilities.
        finish_reason: ``"stop"``, ``"length"``, ..., None if it gives none.
        prompt_tokens: As the server counts them; None if it does not.
        completion_tokens: The same.
    """

    text: str
    places: tuple[Place, ...] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class Asker(Protocol):
    """Whoever answers questions: a server, or a model file read by this library."""

    @property
    def name(self) -> str:
        """How reports call it."""

    def ask(self, question: Question) -> Answer:
        """Answer one question.

        Raises:
            EndpointError: There is no answer, or none that can be read.
            BudgetError: The number of requests agreed on is used up.
        """

    def ask_many(self, questions: Sequence[Question]) -> list[Answer]:
        """Answer many, in order."""


def read_answer(document: object) -> Answer:
    """Read the body of a completion or of a chat completion with one choice.

    Raises:
        EndpointError: A field that must be there is missing or of another kind; the message names it.
    """
    reply = _mapping(document, "the answer")
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        raise EndpointError(f"the answer has {shown(choices)} for choices; it must be a list of at least one")
    choice = _mapping(choices[0], "choices[0]")
    text = choice.get("text")
    if text is None and "message" in choice:
        text = _mapping(choice["message"], "choices[0].message").get("content")
    if not isinstance(text, str):
        raise EndpointError(f"the answer has {shown(text)} for its text; it must be a string")
    reason = choice.get("finish_reason")
    usage = reply.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        text,
        _places(choice.get("logprobs")),
        reason if isinstance(reason, str) else None,
        _count(counts.get("prompt_tokens"), "prompt_tokens"),
        _count(counts.get("completion_tokens"), "completion_tokens"),
    )


def _places(logprobs: object) -> tuple[Place, ...] | None:
    if logprobs is None:
        return None
    fields = _mapping(logprobs, "logprobs")
    if isinstance(fields.get("content"), list):  # as in chats, and in llama.cpp's completions
        return tuple(_chat_place(_mapping(one, "logprobs.content")) for one in fields["content"])
    tokens, values = fields.get("tokens"), fields.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(values, list):
        return None
    tops = fields.get("top_logprobs") or [{}] * len(tokens)
    if not (isinstance(tops, list) and len(tokens) == len(values) == len(tops)):
        raise EndpointError("the answer's logprobs has lists of different lengths for tokens and their values")
    return tuple(
        Place(_text(token), _logprob(value), _top(top)) for token, value, top in zip(tokens, values, tops, strict=True)
    )


def _chat_place(one: Mapping[str, Any]) -> Place:
    tops = one.get("top_logprobs") or []
    if not isinstance(tops, list):
        raise EndpointError(f"the answer has {shown(tops)} for top_logprobs; it must be a list")
    top = {_token(each): _logprob(each.get("logprob")) for each in (_mapping(top, "top_logprobs") for top in tops)}
    return Place(_token(one), _logprob(one.get("logprob")), top)


def _token(one: Mapping[str, Any]) -> str:
    """Return the token's text; where that is cut within a character, with the bytes that tell it from others."""
    text, data = _text(one.get("token")), one.get("bytes")
    if "\ufffd" not in text or not isinstance(data, list) or not all(isinstance(byte, int) for byte in data):
        return text
    return f"{text}{data}"


def _top(top: object) -> dict[str, float]:
    return {} if top is None else {_text(key): _logprob(value) for key, value in _mapping(top, "top_logprobs").items()}


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise EndpointError(f"{what} is {shown(value)}; it must be a JSON object")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise EndpointError(f"the answer has {shown(value)} for a token; it must be a string")
    return value


def _count(value: object, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise EndpointError(f"the answer has {shown(value)} for {name}; it must be a count")
    return value


def _logprob(value: object) -> float:
    """Return a log probability; what cannot be said in JSON, minus infinity, comes as null."""
    if value is None:
        return -math.inf
    if not isinstance(value, int | float) or isinstance(value, bool) or not value <= 1e-3:
        raise EndpointError(f"the answer has {shown(value)} for a log probability; it must be a number, at most 0")
    return min(float(value), 0.0) if value > -1e300 else -math.inf  # a whole number may be beyond all floats
