"""What a client is told when a request cannot be answered: OpenAI's error object, with the right status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

_LONGEST = 500  # characters: a message quotes what the client sent
_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class ApiError(Exception):
    """A request that is refused, or an answer that cannot go on.

    Args:
        status: Of the reply.
        message: What is wrong, with which value, and what to do.
        param: The field it is about, if it is about one.
        code: A word for programs.
        headers: To send with it.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def to_json(self) -> dict[str, Any]:
        """Return the body of the reply."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        message = self.message.encode(errors="replace").decode()  # a lone surrogate cannot be sent
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}


def refusal(problem: ApiError) -> JSONResponse:
    """Return a problem as a reply."""
    return JSONResponse(problem.to_json(), problem.status, problem.headers)
