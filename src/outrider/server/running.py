"""A server as a process: listens, serves until it is told to stop, and then lets what runs come to its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from outrider.engine.llm import LLM
from outrider.errors import UsageError
from outrider.server.app import make_app
from outrider.server.connections import protocol
from outrider.server.keys import is_loopback
from outrider.server.logs import Log
from outrider.server.problems import ApiError
from outrider.server.service import Service
from outrider.server.settings import Settings

_LAST_WORDS_S = 2  # for clients to be told that their answers have been given up


class Server(uvicorn.Server):
    """Tells the service as soon as it is to stop, so that nothing new is let in; gives up what takes too long then."""

    def __init__(self, config: uvicorn.Config, service: Service, line: str) -> None:
        super().__init__(config)
        self._service = service
        self._line = line

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Stop, and at a second Ctrl-C at once; a server that was told to stop and has stopped has done well."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        if self.started:
            sys.stderr.write(f"outrider: {self._line}\n")
            sys.stderr.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what runs come to its end, but for what takes longer than is allowed."""
        service = self._service
        service.is_stopping = True
        service.log.write("stopping", unfinished=service.engine.num_open)
        problem = ApiError(503, "the server has stopped before the answer was finished", code="stopped")
        timer = asyncio.get_running_loop().call_later(
            service.settings.shutdown_timeout_s, service.engine.give_up, problem
        )
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()


class _ToLog(logging.Handler):
    """Sends what uvicorn has to say to our log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        what = None if error is None else f"{type(error).__name__}: {error}"
        self._log.write("problem", message=record.getMessage().split("\n")[0], error=what)


def reserve(host: str, port: int) -> socket.socket:
    """Return a socket with an address of its own, at which nobody is heard yet; port 0 is any that is free.

    Raises:
        UsageError: The address cannot be had.
    """
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        reserved = socket.socket(family, kind, number)  # asyncio sends at once only on what says that it is TCP
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
        except OSError:
            reserved.close()
            raise
    except (OSError, UnicodeError) as error:
        problem = f"cannot listen at {host} port {port}: {error}; choose another with --host and --port"
        raise UsageError(problem) from error
    return reserved


def configure(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """Return how an application is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        http=protocol(settings.client_timeout_s),
        server_header=False,
        timeout_keep_alive=75,  # longer than proxies keep a connection, lest they ask on one that is being closed
        timeout_graceful_shutdown=round(settings.shutdown_timeout_s) + _LAST_WORDS_S,
    )


def serve(llm: LLM, settings: Settings, listening: socket.socket, host: str) -> int:
    """Serve until the process is told to stop.

    Returns:
        How many answers were cut off by the end.
    """
    log = Log(sys.stderr, with_text=settings.logs_text)
    service = Service(llm, settings, log)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    config = configure(make_app(service, is_loopback=is_loopback(host)), settings)
    logger = logging.getLogger("uvicorn.error")
    handler = _ToLog(log)
    logger.addHandler(handler)
    logger.propagate = False
    try:
        Server(config, service, service.describe(address)).run([listening])
    finally:
        logger.removeHandler(handler)
    return service.num_cut_off
