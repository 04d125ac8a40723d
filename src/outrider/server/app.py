"""The routes of the API."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outrider.server.answering import Reply
from outrider.server.bodies import parse_object
from outrider.server.connections import Lingering
from outrider.server.jobs import Job, as_prompts, chat_job, completion_job, naming, plain_messages
from outrider.server.keys import Gate
from outrider.server.openapi import document
from outrider.server.playground import page_routes
from outrider.server.problems import ApiError, refusal
from outrider.server.replies import Style, Words
from outrider.server.schemas import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Generation,
    TokenizeRequest,
    parse,
)
from outrider.server.service import Service
from outrider.server.tools import has_tools

# Requests made ready at a time: it is work for the processor, which the models need, too.
_PREPARING = 2


class Api:
    """The endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._words = Words(service.llm.model.tokenizer)
        self._limiter = anyio.CapacityLimiter(_PREPARING)
        self._openapi = document(service.version)

    def routes(self) -> list[Route]:
        """Return where everything is."""
        return [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/completions", self.complete, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.openapi),
            Route("/outrider/info", self.info),
        ]

    async def chat(self, request: Request) -> Reply:
        """``POST /v1/chat/completions``."""
        asked, job = await self._prepare(request, self._chat_job)
        style = self._style(asked, logprobs=asked.logprobs is True, tools=job.tools)
        return self._reply("chatcmpl", asked, job, style)

    async def complete(self, request: Request) -> Reply:
        """``POST /v1/completions``."""
        asked, job = await self._prepare(request, self._completion_job)
        return self._reply("cmpl", asked, job, self._style(asked, logprobs=asked.logprobs is not None))

    async def models(self, _: Request) -> Response:
        """``GET /v1/models``."""
        return JSONResponse({"object": "list", "data": [self._service.card()]})

    async def model(self, request: Request) -> Response:
        """``GET /v1/models/{name}``."""
        self._check_model(request.path_params["name"])
        return JSONResponse(self._service.card())

    async def tokenize(self, request: Request) -> Response:
        """``POST /tokenize``."""
        return JSONResponse(await self._prepare(request, self._tokenize))

    async def detokenize(self, request: Request) -> Response:
        """``POST /detokenize``."""
        return JSONResponse(await self._prepare(request, self._detokenize))

    async def health(self, _: Request) -> Response:
        """``GET /health``: 200 while requests are taken."""
        if self._service.is_stopping or not self._service.engine.is_alive:
            raise ApiError(503, "the server is stopping" if self._service.is_stopping else "the engine has died")
        return JSONResponse({"status": "ok"})

    async def metrics(self, _: Request) -> Response:
        """``GET /metrics``."""
        return Response(self._service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, _: Request) -> Response:
        """``GET /openapi.json``."""
        return JSONResponse(self._openapi)

    async def info(self, _: Request) -> Response:
        """``GET /outrider/info``."""
        return JSONResponse(self._service.info())

    def _chat_job(self, body: bytes) -> tuple[ChatRequest, Job]:
        asked = parse(ChatRequest, parse_object(body))
        self._check_model(asked.model)
        return asked, chat_job(self._service.llm, asked)

    def _completion_job(self, body: bytes) -> tuple[CompletionRequest, Job]:
        asked = parse(CompletionRequest, parse_object(body))
        self._check_model(asked.model)
        self._service.engine.check_count(len(as_prompts(asked.prompt)) * (asked.n or 1))  # before any is made ready
        return asked, completion_job(self._service.llm, asked)

    def _tokenize(self, body: bytes) -> dict[str, Any]:
        asked = parse(TokenizeRequest, parse_object(body))
        self._check_model(asked.model)
        llm = self._service.llm
        if (asked.prompt is None) == (asked.messages is None):
            raise ApiError(400, "give either prompt or messages", param="prompt")
        if asked.tools and not has_tools(llm.model.chat_template):
            raise ApiError(400, f"the chat template of {llm.model.name} knows no tools", param="tools")
        with naming("prompt" if asked.messages is None else "messages"):
            if asked.messages is None:
                ids = llm.encode(asked.prompt or "", chat=False) if asked.prompt else []
            else:
                tools = [tool.model_dump(exclude_none=True) for tool in asked.tools or ()] or None
                ids = llm.encode(plain_messages(asked.messages), tools=tools)
        return {"count": len(ids), "max_model_len": llm.model.backend.max_length, "tokens": ids}

    def _detokenize(self, body: bytes) -> dict[str, Any]:
        asked = parse(DetokenizeRequest, parse_object(body))
        self._check_model(asked.model)
        model = self._service.llm.model
        for token_id in asked.tokens:
            if not 0 <= token_id < model.vocab_size:
                problem = f"tokens has {token_id}; ids are from 0 to {model.vocab_size - 1}"
                raise ApiError(400, problem, param="tokens")
        return {"prompt": b"".join(map(model.tokenizer.token_bytes, asked.tokens)).decode(errors="replace")}

    async def _prepare(self, request: Request, make: Callable[[bytes], Any]) -> Any:
        """Read a request's body and make of it what is needed, beside the event loop.

        Raises:
            ApiError: It is no such request, or too large, or comes too slowly.
        """
        if self._service.is_stopping:
            raise ApiError(503, "the server is stopping", headers={"Retry-After": "10"})
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, f"the content type is {kind[:100]!r}; send application/json")
        limit, body = self._service.settings.max_body_bytes, bytearray()
        try:
            with anyio.fail_after(self._service.settings.client_timeout_s):
                async for piece in request.stream():
                    body += piece
                    if len(body) > limit:
                        raise ApiError(413, f"the body has more than {limit} bytes, which is the limit")
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time") from None
        except ClientDisconnect:
            raise ApiError(400, "the body broke off") from None
        return await anyio.to_thread.run_sync(make, bytes(body), limiter=self._limiter)

    def _check_model(self, name: str | None) -> None:
        known = self._service.llm.model.name
        if name not in (None, known):
            problem = f"the model {(name or '')[:100]!r} is not served here; {known} is"
            raise ApiError(404, problem, param="model", code="model_not_found")

    def _style(self, asked: Generation, *, logprobs: bool, tools: Sequence[str] = ()) -> Style:
        drafter = " + ".join(self._service.llm.drafters) or None
        return Style(self._words, drafter, asked.return_token_details is True, logprobs, tools)

    def _reply(self, prefix: str, asked: Generation, job: Job, style: Style) -> Reply:
        service = self._service
        return Reply(
            engine=service.engine,
            ticket=service.engine.submit(job.requests, is_streamed=asked.stream is True),
            job=job,
            asked=asked,
            style=style,
            settings=service.settings,
            request_id=f"{prefix}-{secrets.token_hex(12)}",
            model=service.llm.model.name,
            finished=service.log_reply,
        )


def make_app(service: Service, *, is_loopback: bool = True) -> Starlette:
    """Return the ASGI application of a service.

    Args:
        service: Its engine runs as long as the application does.
        is_loopback: Whether it is served on this machine's own addresses only.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(service.stop)

    gate = Middleware(Gate, keys=service.settings.api_keys, is_loopback=is_loopback)
    return Starlette(
        routes=[*Api(service).routes(), *page_routes()],
        middleware=[Middleware(Lingering), gate],
        lifespan=lifespan,
        exception_handlers={ApiError: _api_error, HTTPException: _http_error, Exception: _failure},
    )


async def _api_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise TypeError(error)
    return refusal(error)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise TypeError(error)
    path = request.url.path[:100]
    problem = {404: f"there is nothing at {path!r}", 405: f"{request.method} is not for {path!r}"}
    return refusal(ApiError(error.status_code, problem.get(error.status_code, error.detail), headers=error.headers))


async def _failure(_: Request, error: Exception) -> Response:
    return refusal(ApiError(500, f"the server failed: {type(error).__name__}"))
