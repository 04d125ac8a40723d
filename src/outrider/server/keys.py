"""Who may ask: API keys where there are any, and only this machine's own pages where there are none."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from hmac import compare_digest

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.server.problems import ApiError, refusal

_OPEN = ("/health", "/", "/page")  # what takes no key


class Gate:
    """Middleware that lets requests through to an application, or refuses them.

    Without keys a name that is not this machine's is refused: a page of somewhere else could otherwise reach a server
    on loopback by a name of its own that resolves to it.

    Args:
        app: What is behind it.
        keys: Any of them opens it; without any it is open.
        is_loopback: Whether the server listens on this machine's own addresses only.
    """

    def __init__(self, app: ASGIApp, keys: Sequence[str], *, is_loopback: bool) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._is_loopback = is_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await refusal(problem)(scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        headers, path = Headers(scope=scope), scope["path"]
        if not self._keys:
            name = headers.get("host", "localhost").rsplit(":", 1)
            host = name[0] if len(name) == 1 or name[1].isdigit() else headers["host"]
            if self._is_loopback and not is_loopback(host.lower().removeprefix("[").removesuffix("]")):
                return ApiError(403, f"the host {host[:100]!r} is not this machine; use localhost, or set an API key")
            return None
        if path in _OPEN or path.startswith("/page/"):
            return None
        kind, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip().encode()
        is_known = [compare_digest(given, known) for known in self._keys]  # each is compared, whichever it is
        if kind.lower() == "bearer" and any(is_known):
            return None
        problem = "the API key is missing or unknown; send it as Authorization: Bearer KEY"
        return ApiError(401, problem, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
