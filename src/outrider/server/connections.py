"""Connections of clients that are slow, or silent, or do not listen: each has its time, and then it is over."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import h11
import uvicorn
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

# What is still read of a request that has been answered, so that its client comes to read the answer: one that is hung
# up on while it sends may never see it.
_DRAIN_BYTES = 16 << 20
_DRAIN_S = 2.0


def protocol(patience_s: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with an end to its patience.

    Args:
        patience_s: How long a client may take to send the head of a request, and for how long it may read nothing of
            what it has been sent, after which its connection ends.
    """

    class Patient(H11Protocol):
        def __init__(
            self,
            config: uvicorn.Config,
            server_state: ServerState,
            app_state: dict[str, Any],
            _loop: asyncio.AbstractEventLoop | None = None,
        ) -> None:
            super().__init__(config, server_state, app_state, _loop)
            self._head: asyncio.TimerHandle | None = None
            self._reader: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=0)  # what the system does not take waits, and is waited for
            self._head = self.loop.call_later(patience_s, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._head = _stop(self._head)
            elif self._head is None:
                self._head = self.loop.call_later(patience_s, self.transport.abort)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._wait_for_reader()

        def resume_writing(self) -> None:
            self._reader = _stop(self._reader)
            super().resume_writing()

        def connection_lost(self, exc: Exception | None) -> None:
            _stop(self._head)
            _stop(self._reader)
            super().connection_lost(exc)

        def _wait_for_reader(self) -> None:
            size = self.transport.get_write_buffer_size()
            self._reader = self.loop.call_later(patience_s, self._check_reader, size)

        def _check_reader(self, size: int) -> None:
            if self.transport.get_write_buffer_size() < size:
                self._wait_for_reader()
            else:
                self.transport.abort()

    return Patient


def _stop(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None


class Lingering:
    """Middleware that closes the connection after an answer to a request that has not been read to its end.

    Otherwise the rest would be read, without a limit, to get to the next request. Some of it is, after the answer.

    Args:
        app: What is behind it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, and its answer back."""
        headers = Headers(scope=scope) if scope["type"] == "http" else {}
        if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
            await self._app(scope, receive, send)
            return
        is_read = False

        async def hear() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = is_read or not message.get("more_body", False)
            return message

        async def answer(message: Message) -> None:
            if not is_read and message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            elif not is_read and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await drain()
                message = {"type": "http.response.body"}
            await send(message)

        async def drain() -> None:
            num_bytes = 0
            with anyio.move_on_after(_DRAIN_S):
                while not is_read and num_bytes < _DRAIN_BYTES:
                    num_bytes += len((await hear()).get("body", b""))

        await self._app(scope, hear, answer)
