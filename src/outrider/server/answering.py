"""A reply in the making: reads a ticket, writes to a client, and gives the ticket up when the client is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from outrider.engine.outputs import EmittedToken, GenerationOutput, Origin
from outrider.errors import UsageError
from outrider.server.engine import Engine, Event, Ticket
from outrider.server.jobs import Job
from outrider.server.problems import ApiError
from outrider.server.replies import ChatChoice, Style, Tally, TextChoice, make_choices, prompt_logprobs
from outrider.server.schemas import ChatRequest, Generation
from outrider.server.settings import Settings

_DONE = b"data: [DONE]\n\n"
_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
# No line of an event ends at these, but many clients think so, ``str.splitlines`` and with it httpx among them.
_LINE_ENDS = {ord(one): f"\\u{ord(one):04x}" for one in "\x85\u2028\u2029"}


@dataclass(slots=True)
class Reply:
    """An ASGI application that answers one request, whole or as a stream.

    Attributes:
        engine: Where the ticket is from.
        ticket: What is answered.
        job: What it was made of.
        asked: The request.
        style: What the reply looks like.
        settings: For its limits.
        request_id: Of the reply.
        model: Its name.
        finished: Is told once how it went, with the status, or None where the client had gone.
        outputs: The whole answers, by choice.
        num_tokens: How many tokens have come for it.
        so_far: Of answers that have not ended, how many tokens were drafted and how many of those accepted, by choice.
    """

    engine: Engine
    ticket: Ticket
    job: Job
    asked: Generation
    style: Style
    settings: Settings
    request_id: str
    model: str
    finished: Callable[[Reply, int | None], None]
    outputs: dict[int, GenerationOutput] = field(default_factory=dict)
    num_tokens: int = 0
    so_far: dict[int, tuple[int, int]] = field(default_factory=dict)
    created: int = field(default_factory=lambda: int(time.time()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, until all is said, the client is gone or time is up."""
        status: int | None = None
        try:
            async with anyio.create_task_group() as group:

                async def watch() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(watch)
                status = await (self._stream(send) if self.asked.stream else self._whole(scope, receive, send))
                group.cancel_scope.cancel()
        finally:
            self.engine.cancel(self.ticket)
            self.finished(self, status)

    async def _stream(self, send: Send) -> int:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        headers.append((b"x-accel-buffering", b"no"))  # nginx would hold it back
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            with anyio.fail_after(self.settings.request_timeout_s):
                await self._send_chunks(send)
        except (ApiError, TimeoutError) as error:
            problem = error if isinstance(error, ApiError) else self._late()
            await send(_body(_event(problem.to_json()), more=False))
            return problem.status
        return 200

    async def _send_chunks(self, send: Send) -> None:
        choices, tally = self._choices(), Tally()
        includes_usage = self.asked.stream_options is not None and self.asked.stream_options.include_usage
        write = _Chunks(self._head(is_chunk=True), len(choices) == 1, usage_null=includes_usage)
        first = [chunk for choice in choices for chunk in choice.first()]
        if first:
            await send(_body(write(first)))
        while len(self.outputs) < len(choices):
            parts: list[dict[str, Any]] = []
            for event in await self.ticket.read():
                self._take(event, tally)
                parts += choices[event.choice].add(event)
            if parts:
                await send(_body(write(parts)))
        last = b""
        if includes_usage:
            usage = {"usage": tally.to_json(self.job.num_prompt_tokens)}
            last = _event({**self._head(is_chunk=True), "choices": [], **usage})
        await send(_body(last + _DONE, more=False))

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> int:
        try:
            with anyio.fail_after(self.settings.request_timeout_s):
                document = await self._gather()
            response = JSONResponse(document)
        except (ApiError, TimeoutError) as error:
            problem = error if isinstance(error, ApiError) else self._late()
            response = JSONResponse(problem.to_json(), problem.status, problem.headers)
        await response(scope, receive, send)
        return response.status_code

    async def _gather(self) -> dict[str, Any]:
        choices, tally = self._choices(), Tally()
        tokens: dict[int, list[EmittedToken]] = {choice.index: [] for choice in choices}
        last: dict[int, Event] = {}
        while len(last) < len(choices):
            for event in await self.ticket.read():
                tokens[event.choice] += event.tokens
                self._take(event, tally)
                if event.output is not None:
                    last[event.choice] = event
        told = [choice.whole(tokens[place], last[place], self.outputs[place]) for place, choice in enumerate(choices)]
        if self.asked.prompt_logprobs is not None:
            for choice, request in zip(told, self.job.requests, strict=True):
                output = self.outputs[choice["index"]]
                choice["prompt_logprobs"] = prompt_logprobs(output, request.prompt_ids, self.style.words)
        alone = {name: told[0][name] for name in ("speculation", "timing")} if len(told) == 1 else {}
        usage = {"usage": tally.to_json(self.job.num_prompt_tokens)}
        return {**self._head(), "choices": told, **usage, **alone}

    def _take(self, event: Event, tally: Tally) -> None:
        """Note what has come, and the whole answer if it has ended.

        Raises:
            ApiError: It has ended in an error, and is the only one.
        """
        self.num_tokens += len(event.tokens)
        if event.output is None:
            accepted = sum(token.origin is Origin.ACCEPTED for token in event.tokens)
            _, before = self.so_far.get(event.choice, (0, 0))
            self.so_far[event.choice] = (event.num_draft_tokens, before + accepted)
            return
        self.so_far.pop(event.choice, None)
        self.outputs[event.choice] = event.output
        tally.add(event.output, is_first=event.choice % self.job.requests[0].params.n == 0)
        if event.output.error is not None and len(self.job.requests) == 1:
            problem, wanted = event.output.error, self.job.requests[0].params.response_format
            is_too_much = wanted is not None and isinstance(problem, UsageError)  # which shows when the text gets there
            status = 400 if is_too_much else 500
            raise ApiError(status, f"the answer cannot go on: {problem}", code="answer_failed")

    def _choices(self) -> list[ChatChoice | TextChoice]:
        return make_choices(self.job, self.style, self.request_id, is_chat=isinstance(self.asked, ChatRequest))

    def _head(self, *, is_chunk: bool = False) -> dict[str, Any]:
        kind = "text_completion"
        if isinstance(self.asked, ChatRequest):
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {"id": self.request_id, "object": kind, "created": self.created, "model": self.model}

    def _late(self) -> ApiError:
        limit = self.settings.request_timeout_s
        return ApiError(504, f"the answer took longer than {limit:g} s, which is the server's limit", code="timeout")


class _Chunks:
    """Writes the chunks of a stream as events. What all of them begin with is made once.

    Args:
        head: What a chunk holds beside its choice.
        is_alone: Whether there is one choice only, whose account then stands at the top level, too.
        usage_null: Whether each chunk says that it has no usage.
    """

    def __init__(self, head: dict[str, Any], is_alone: bool, *, usage_null: bool) -> None:  # noqa: FBT001
        self._head = _to_json(head).removesuffix("}") + ","
        self._is_alone = is_alone
        self._rest = {"usage": None} if usage_null else {}

    def __call__(self, choices: Iterable[dict[str, Any]]) -> bytes:
        return b"".join(map(self._chunk, choices))

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        told = {name: choice[name] for name in ("speculation", "timing") if self._is_alone and name in choice}
        return _framed(self._head + _to_json({"choices": [choice], **told, **self._rest}).removeprefix("{"))


def _event(document: dict[str, Any]) -> bytes:
    return _framed(_to_json(document))


def _framed(text: str) -> bytes:
    return b"data: " + (text if text.isascii() else text.translate(_LINE_ENDS)).encode() + b"\n\n"


def _body(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}
