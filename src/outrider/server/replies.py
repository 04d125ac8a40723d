"""From tokens to what a client reads: whole replies and the chunks of a stream, for chats and for completions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from outrider.engine.outputs import EmittedToken, GenerationOutput, Origin
from outrider.models.tokenizer import Tokenizer
from outrider.sampling import TokenLogprobs
from outrider.server.engine import Event
from outrider.server.jobs import Job
from outrider.server.tools import Call, CallParser

_LEAST_LOGPROB = -9999.0  # JSON has no infinity; OpenAI and vLLM write this


class Words:
    """How tokens are shown where they are looked at one by one."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, token_id: int) -> str:
        """Return a token as text; a control token by its name."""
        raw = self._tokenizer.token_bytes(token_id)
        return raw.decode(errors="replace") if raw else self._tokenizer.pieces[token_id]

    def chat_logprob(self, token_id: int, seen: TokenLogprobs) -> dict[str, Any]:
        """Return an entry of a chat's ``logprobs.content``."""
        entry = self._entry(token_id, seen.logprob)
        return {**entry, "top_logprobs": [self._entry(top_id, logprob) for top_id, logprob in seen.top]}

    def details(self, tokens: Iterable[EmittedToken], drafter: str | None) -> list[dict[str, Any]]:
        """Return ``token_details``.

        Args:
            tokens: Of one answer.
            drafter: Who has proposed what does not say who has.
        """
        return [
            {
                "id": token.token_id,
                "text": token.text,
                "origin": token.origin.value,
                "source": (token.source or drafter) if token.origin is Origin.ACCEPTED else None,
                "logprob": None if token.logprobs is None else _finite(token.logprobs.logprob),
                "top_logprobs": [
                    {"id": top_id, "text": self.text(top_id), "logprob": logprob}
                    for top_id, logprob in (() if token.logprobs is None else token.logprobs.top)
                ],
            }
            for token in tokens
        ]

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.token_bytes(token_id)
        return {"token": self.text(token_id), "logprob": _finite(logprob), "bytes": list(raw)}


@dataclass(slots=True)
class Tally:
    """What of the answers' usage is known."""

    cached_tokens: int = 0
    completion_tokens: int = 0
    accepted: int = 0
    rejected: int = 0

    def add(self, output: GenerationOutput, *, is_first: bool) -> None:
        """Count an answer; prompts are counted once, with the first answer to each."""
        self.cached_tokens += output.usage.cached_tokens if is_first else 0
        self.completion_tokens += output.usage.completion_tokens
        self.accepted += output.speculation.accepted_prediction_tokens
        self.rejected += output.speculation.rejected_prediction_tokens

    def to_json(self, prompt_tokens: int) -> dict[str, Any]:
        """Return ``usage``."""
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {
                "accepted_prediction_tokens": self.accepted,
                "rejected_prediction_tokens": self.rejected,
            },
        }


@dataclass(slots=True)
class Style:
    """What a reply looks like.

    Attributes:
        words: Of the target.
        drafter: The name of the engine's, for tokens that do not say whose they are.
        with_details: Whether tokens are told of one by one.
        logprobs: Whether how likely they were is told in OpenAI's way.
        tools: The names of those of which calls are looked for.
    """

    words: Words
    drafter: str | None = None
    with_details: bool = False
    logprobs: bool = False
    tools: Sequence[str] = ()


@dataclass(slots=True)
class ChatChoice:
    """One answer of a chat, as it grows."""

    index: int
    style: Style
    request_id: str
    parser: CallParser = field(init=False)
    num_told: int = 0

    def __post_init__(self) -> None:
        self.parser = CallParser(self.style.tools)

    def first(self) -> list[dict[str, Any]]:
        """Return what a stream begins with."""
        return [{"index": self.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]

    def add(self, event: Event) -> list[dict[str, Any]]:
        """Return a round's part of the chunks."""
        text, style = "".join(token.text for token in event.tokens), self.style
        found = self.parser.feed(text) if style.tools else [text] if text else []
        if event.output is not None and style.tools:
            found += self.parser.finish()
        deltas = [self._delta(one) for one in found]
        told = self._told(event.tokens)
        if style.with_details:
            told["num_draft_tokens"] = event.num_draft_tokens
        if told and not deltas:
            deltas = [{}]
        chunks: list[dict[str, Any]] = [
            {"index": self.index, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        if told:
            chunks[0] |= told
        if event.output is not None:
            chunks.append({"index": self.index, "delta": {}, "finish_reason": self.reason(event.output)})
            chunks[-1] |= account(event)
        return chunks

    def whole(self, tokens: Sequence[EmittedToken], event: Event, output: GenerationOutput) -> dict[str, Any]:
        """Return the choice of a whole reply."""
        found: list[str | Call] = [output.text]
        if self.style.tools:
            found = [*self.parser.feed(output.text), *self.parser.finish()]
        texts = [one for one in found if isinstance(one, str)]
        calls = [one for one in found if isinstance(one, Call)]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
        if calls:
            message["tool_calls"] = [self._call(number, call) for number, call in enumerate(calls)]
        choice = {"index": self.index, "message": message, "finish_reason": self.reason(output), "logprobs": None}
        return choice | self._told(tokens) | account(event)

    def reason(self, output: GenerationOutput) -> str:
        """Return why the answer has ended."""
        return "tool_calls" if self.parser.num_calls and output.finish_reason == "stop" else output.finish_reason

    def _delta(self, one: str | Call) -> dict[str, Any]:
        if isinstance(one, str):
            return {"content": one}
        self.num_told += 1
        number = self.num_told - 1
        return {"tool_calls": [{"index": number, **self._call(number, one)}]}

    def _call(self, number: int, call: Call) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        return {"id": f"call_{self.request_id[-24:]}_{self.index}_{number}", "type": "function", "function": function}

    def _told(self, tokens: Sequence[EmittedToken]) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self.style.logprobs:
            seen = [(token.token_id, token.logprobs) for token in tokens]
            content = [self.style.words.chat_logprob(one, logprobs) for one, logprobs in seen if logprobs is not None]
            told["logprobs"] = {"content": content, "refusal": None}
        if self.style.with_details:
            told["token_details"] = self.style.words.details(tokens, self.style.drafter)
        return told


@dataclass(slots=True)
class TextChoice:
    """One answer of a completion, as it grows; ``echo`` is the prompt, if it comes before the answer."""

    index: int
    style: Style
    prompt_ids: Sequence[int] = ()
    echo: str = ""
    offset: int = 0
    is_echoed: bool = False

    def first(self) -> list[dict[str, Any]]:
        """Return what a stream begins with."""
        return []

    def add(self, event: Event) -> list[dict[str, Any]]:
        """Return a round's part of the chunks."""
        text = "".join(token.text for token in event.tokens)
        told = self._told(event.tokens, None if event.output is None else event.output.prompt_logprobs)
        if self.style.with_details:
            told["num_draft_tokens"] = event.num_draft_tokens
        if not self.is_echoed:
            text, self.is_echoed = self.echo + text, True
        chunks: list[dict[str, Any]] = []
        if text or told:
            chunks.append({"index": self.index, "text": text, "finish_reason": None, "logprobs": None} | told)
        if event.output is not None:
            chunks.append(
                {"index": self.index, "text": "", "finish_reason": event.output.finish_reason, "logprobs": None}
            )
            chunks[-1] |= account(event)
        return chunks

    def whole(self, tokens: Sequence[EmittedToken], event: Event, output: GenerationOutput) -> dict[str, Any]:
        """Return the choice of a whole reply."""
        choice = {
            "index": self.index,
            "text": self.echo + output.text,
            "finish_reason": output.finish_reason,
            "logprobs": None,
        }
        return choice | self._told(tokens, output.prompt_logprobs) | account(event)

    def _told(self, tokens: Sequence[EmittedToken], prompt: Sequence[TokenLogprobs | None] | None) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if self.style.logprobs:
            seen = [(token.token_id, token.text, token.logprobs) for token in tokens]
            if self.echo and prompt is not None:
                texts = [self.style.words.text(token_id) for token_id in self.prompt_ids]
                seen = [*zip(self.prompt_ids, texts, prompt, strict=True), *seen]
            told["logprobs"] = self._legacy(seen)
        if self.style.with_details:
            told["token_details"] = self.style.words.details(tokens, self.style.drafter)
        return told

    def _legacy(self, seen: Sequence[tuple[int, str, TokenLogprobs | None]]) -> dict[str, Any]:
        offsets, words = [], self.style.words
        for _, text, _ in seen:
            offsets.append(self.offset)
            self.offset += len(text)
        return {
            "tokens": [words.text(token_id) for token_id, _, _ in seen],
            "token_logprobs": [None if one is None else _finite(one.logprob) for _, _, one in seen],
            "top_logprobs": [
                None if one is None else {words.text(top_id): logprob for top_id, logprob in reversed(one.top)}
                for _, _, one in seen
            ],
            "text_offset": offsets,
        }


def account(event: Event) -> dict[str, Any]:
    """Return what every answer says of itself when it has ended."""
    output = event.output
    if output is None:
        raise AssertionError("an answer is accounted for when it has ended")
    timing = asdict(output.timing)
    del timing["load_s"]
    told: dict[str, Any] = {
        "speculation": output.speculation.to_json(),
        "timing": {"queue_s": event.queued_s, **timing},
    }
    if output.error is not None:
        told["error"] = str(output.error)
    return told


def prompt_logprobs(output: GenerationOutput, prompt_ids: Sequence[int], words: Words) -> list[Any] | None:
    """Return vLLM's ``prompt_logprobs``: for each token of the prompt how likely it and others were, by id."""
    if output.prompt_logprobs is None:
        return None
    told: list[Any] = []
    for token_id, seen in zip(prompt_ids, output.prompt_logprobs, strict=True):
        if seen is None:
            told.append(None)
            continue
        ranks = {top_id: rank for rank, (top_id, _) in enumerate(seen.top, start=1)}
        each = {token_id: seen.logprob, **dict(seen.top)}
        told.append(
            {
                str(one): {"logprob": _finite(logprob), "rank": ranks.get(one), "decoded_token": words.text(one)}
                for one, logprob in each.items()
            }
        )
    return told


def make_choices(job: Job, style: Style, request_id: str, *, is_chat: bool) -> list[ChatChoice | TextChoice]:
    """Return the answers of a job, before they have anything in them."""
    if is_chat:
        return [ChatChoice(index, style, request_id) for index in range(len(job.requests))]
    n = job.requests[0].params.n
    return [
        TextChoice(index, style, request.prompt_ids, job.prompts[index // n] if job.prompts else "")
        for index, request in enumerate(job.requests)
    ]


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)
