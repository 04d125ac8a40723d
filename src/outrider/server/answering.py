"""A reply in the making: reads a ticket, writes to a client, and gives the ticket up when the client is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from outrider.engine.outputs import EmittedToken, GenerationOutput
from outrider.server.engine import Engine, Event, Ticket
from outrider.server.jobs import Job
from outrider.server.problems import ApiError
from outrider.server.replies import ChatChoice, Style, Tally, TextChoice, make_choices, prompt_logprobs
from outrider.server.schemas import ChatRequest, Generation
from outrider.server.settings import Settings

_DONE = b"data: [DONE]\n\n"
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
                patient = _Patient(send, self.settings.client_timeout_s, group.cancel_scope)
                status = await (self._stream(patient) if self.asked.stream else self._whole(scope, receive, patient))
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
        first = [chunk for choice in choices for chunk in choice.first()]
        if first:
            await send(_body(b"".join(self._chunk(chunk, usage_null=includes_usage) for chunk in first)))
        while len(self.outputs) < len(choices):
            parts: list[bytes] = []
            for event in await self.ticket.read():
                if event.output is not None:
                    self._take(event, tally)
                parts += (self._chunk(one, usage_null=includes_usage) for one in choices[event.choice].add(event))
            if parts:
                await send(_body(b"".join(parts)))
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
                if event.output is not None:
                    self._take(event, tally)
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
        """Note an answer that has ended.

        Raises:
            ApiError: It has ended in an error, and is the only one.
        """
        if event.output is None:
            return
        self.outputs[event.choice] = event.output
        tally.add(event.output, is_first=event.choice % self.job.requests[0].params.n == 0)
        if event.output.error is not None and len(self.job.requests) == 1:
            raise ApiError(500, f"the answer cannot go on: {event.output.error}", code="answer_failed")

    def _choices(self) -> list[ChatChoice | TextChoice]:
        return make_choices(self.job, self.style, self.request_id, is_chat=isinstance(self.asked, ChatRequest))

    def _head(self, *, is_chunk: bool = False) -> dict[str, Any]:
        kind = "text_completion"
        if isinstance(self.asked, ChatRequest):
            kind = "chat.completion.chunk" if is_chunk else "chat.completion"
        return {"id": self.request_id, "object": kind, "created": self.created, "model": self.model}

    def _chunk(self, choice: dict[str, Any], *, usage_null: bool) -> bytes:
        document = {**self._head(is_chunk=True), "choices": [choice]}
        if len(self.job.requests) == 1:
            document |= {name: choice[name] for name in ("speculation", "timing") if name in choice}
        if usage_null:
            document["usage"] = None
        return _event(document)

    def _late(self) -> ApiError:
        limit = self.settings.request_timeout_s
        return ApiError(504, f"the answer took longer than {limit:g} s, which is the server's limit", code="timeout")


class _Patient:
    """Sends, and ends the reply when the client takes nothing for too long."""

    def __init__(self, send: Send, timeout_s: float, scope: anyio.CancelScope) -> None:
        self._send = send
        self._timeout_s = timeout_s
        self._scope = scope

    async def __call__(self, message: Any) -> None:
        with anyio.move_on_after(self._timeout_s) as waiting:
            await self._send(message)
        if waiting.cancelled_caught:
            self._scope.cancel()
            await anyio.sleep(0)


def _event(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.translate(_LINE_ENDS).encode() + b"\n\n"


def _body(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}
