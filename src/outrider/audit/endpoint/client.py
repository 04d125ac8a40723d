"""Asks a server with the OpenAI API: within a budget, patiently where it asks for patience, and trusting nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from outrider.audit.endpoint.questions import Answer, Question, read_answer
from outrider.errors import BudgetError, EndpointError, RefusedError, UsageError
from outrider.models.fields import shown

_MAX_BYTES = 8 << 20
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_NO_SUCH_API = frozenset({404, 405, 501})
_ATTEMPTS = 6
_NUMS_TOP = (20, 5, None)  # what is tried: OpenAI reports 20 in chats and 5 in completions
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 120.0


@dataclass(slots=True)
class Meter:
    """Counts the requests and tokens of a run, over all its servers and threads.

    Attributes:
        max_requests: The most requests, those tried again included.
        requests: Sent so far.
        retries: Of those, how many were second and later attempts.
        waited_s: Spent waiting between attempts.
        tokens: Of prompts and answers, as far as the servers say.
    """

    max_requests: int
    requests: int = 0
    retries: int = 0
    waited_s: float = 0.0
    tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend(self, attempt: int) -> None:
        """Count a request.

        Raises:
            BudgetError: None is left.
        """
        with self._lock:
            if self.requests >= self.max_requests:
                raise BudgetError(f"the {self.max_requests} requests allowed are used up; raise --max-requests")
            self.requests += 1
            self.retries += attempt > 0

    def add(self, *, tokens: int = 0, waited_s: float = 0.0) -> None:
        """Count what a request came to."""
        with self._lock:
            self.tokens += tokens
            self.waited_s += waited_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server, and how to treat it.

    Attributes:
        base_url: As OpenAI's clients take it, usually ending in ``/v1``.
        model: By its name there; None takes the first one that the server lists.
        api_key: Sent as a bearer token; nowhere else.
        extra: More fields for every request, as for what a server calls by a name of its own.
        timeout_s: For connecting, and for each wait for more of an answer.
        concurrency: The most requests at a time.
    """

    base_url: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 60.0
    concurrency: int = 4


class Client:
    """Asks one server; an :class:`~outrider.audit.endpoint.questions.Asker`.

    Args:
        server: Which.
        meter: What requests are counted on.
        sleep: Waits for some seconds.
        now: The time of day, for servers that say until when to wait.
        transport: Stands in for the network.

    Raises:
        UsageError: The URL is none.
        EndpointError: No server answers there, or it does not answer even a simple question.
    """

    def __init__(
        self,
        server: Server,
        meter: Meter,
        *,
        sleep: Callable[[float], None],
        now: Callable[[], datetime],
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.name = _checked(server.base_url)
        self._meter = meter
        self._sleep = sleep
        self._now = now
        self._extra = dict(server.extra)
        self._concurrency = server.concurrency
        self._http = httpx.Client(
            headers={} if server.api_key is None else {"Authorization": f"Bearer {_checked_key(server.api_key)}"},
            timeout=server.timeout_s,
            transport=transport,
        )
        self._chat = False
        self._most: int | None = None
        try:
            self.model = server.model if server.model is not None else self._first_model()
            self._choose_api()
        except BaseException:
            self.close()
            raise

    @property
    def api(self) -> str:
        """``"completions"``, or ``"chat"`` where the server has nothing else."""
        return "chat" if self._chat else "completions"

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def ask(self, question: Question) -> Answer:
        """See :class:`~outrider.audit.endpoint.questions.Asker`."""
        if question.logprobs is not None:
            question = replace(question, logprobs=None if self._most is None else min(question.logprobs, self._most))
        status, document = self._post(question)
        if status != 200:
            raise RefusedError(f"{self.name} answers {status} to {self.api}: {_message(document)}")
        try:
            answer = read_answer(document)
        except EndpointError as error:
            raise EndpointError(f"{self.name}: {error}") from error
        self._meter.add(tokens=(answer.prompt_tokens or 0) + (answer.completion_tokens or 0))
        return answer

    def ask_many(self, questions: Sequence[Question]) -> list[Answer]:
        """See :class:`~outrider.audit.endpoint.questions.Asker`; the first error ends it."""
        with ThreadPoolExecutor(self._concurrency) as pool:
            waiting = [pool.submit(self.ask, question) for question in questions]
            try:
                return [one.result() for one in waiting]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def _first_model(self) -> str:
        status, document = self._send("GET", "/models")
        listed = document.get("data") if isinstance(document, dict) else None
        first = listed[0].get("id") if isinstance(listed, list) and listed and isinstance(listed[0], dict) else None
        if status != 200 or not isinstance(first, str):
            raise EndpointError(
                f"{self.name} lists no model (status {status}: {_message(document)}); name one with --model, and check "
                "that the URL ends where OpenAI's clients want it, usually in /v1"
            )
        return first

    def _choose_api(self) -> None:
        """Find out which API there is, and how many likeliest tokens it reports."""
        for self._most in _NUMS_TOP:
            status, document = self._post(Question("1 2 3", max_tokens=1, logprobs=self._most))
            if status in _NO_SUCH_API and not self._chat:
                self._chat = True
                status, document = self._post(Question("1 2 3", max_tokens=1, logprobs=self._most))
            if status == 200:
                return
        raise RefusedError(f"{self.name} answers {status} to {self.api}: {_message(document)}")

    def _post(self, question: Question) -> tuple[int, object]:
        body = {"model": self.model, **question.body(chat=self._chat), **self._extra}
        return self._send("POST", "/chat/completions" if self._chat else "/completions", body)

    def _send(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Return status and document of an answer, after as many attempts as that takes."""
        problem = ""
        for attempt in range(_ATTEMPTS):
            self._meter.spend(attempt)
            wait_s = min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S)
            try:
                status, headers, data = self._receive(method, path, body)
            except httpx.RequestError as error:
                problem = f"{type(error).__name__} {error}".strip()
            else:
                if status not in _TRY_AGAIN:
                    return status, self._parse(data)
                problem = f"status {status}"
                wait_s = self._asked_wait(headers.get("Retry-After")) or wait_s
            if wait_s > _LONGEST_WAIT_S:
                raise EndpointError(
                    f"{self.name} asks to wait for {wait_s:.0f} s, the limit is {_LONGEST_WAIT_S:.0f}; come back later"
                )
            if attempt + 1 < _ATTEMPTS:
                self._meter.add(waited_s=wait_s)
                self._sleep(wait_s)
        raise EndpointError(
            f"{self.name}{path} failed {_ATTEMPTS} times, the last time with {problem}; see that the server is up, and "
            "lower --concurrency if it limits rates"
        )

    def _receive(self, method: str, path: str, body: object) -> tuple[int, httpx.Headers, bytes]:
        # Half a surrogate pair, as in a model's name, can be spelled in JSON though not in UTF-8.
        content, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        sent: dict[str, Any] = {} if body is None else {"content": content, "headers": headers}
        with self._http.stream(method, self.name + path, **sent) as reply:
            data = b""
            for part in reply.iter_bytes():
                data += part
                if len(data) > _MAX_BYTES:
                    raise EndpointError(f"{self.name} sends more than {_MAX_BYTES} bytes for one answer")
            return reply.status_code, reply.headers, data

    def _asked_wait(self, header: str | None) -> float | None:
        """Return for how many seconds a server asks us to wait, in its two ways of saying so; None if it does not."""
        if header is None:
            return None
        if header.strip().isdecimal():
            return float(header)
        try:
            until = parsedate_to_datetime(header)
        except (ValueError, OverflowError):
            return None
        until = until if until.tzinfo else until.replace(tzinfo=timezone.utc)
        return max((until - self._now()).total_seconds(), 0.0)

    def _parse(self, data: bytes) -> object:
        try:
            document: object = json.loads(data)
        except (ValueError, RecursionError):
            return data[:200].decode("utf-8", errors="replace")
        return document


def _checked(base_url: str) -> str:
    try:
        url = httpx.URL(base_url)
        host = url.host
        url.raw_host.decode().encode("idna")  # as the lookup of names does
    except (httpx.InvalidURL, TypeError, UnicodeError) as error:
        raise UsageError(f"{shown(base_url)} is no URL: {error}; write http://127.0.0.1:8080/v1") from error
    if url.scheme not in ("http", "https") or not host:
        raise UsageError(f"{shown(base_url)} is no http URL; write http://127.0.0.1:8080/v1")
    if url.userinfo or url.query or url.fragment:
        raise UsageError("the base URL has a password, a query or a fragment; give the key with --api-key-env")
    return str(url).rstrip("/")


def _checked_key(key: str) -> str:
    if not (key.isascii() and key.isprintable()):
        raise UsageError("the API key holds what no HTTP header may, as a line break or what is not ASCII; correct it")
    return key


def _message(document: object) -> str:
    error = document.get("error", document) if isinstance(document, dict) else document
    return shown(error.get("message", error) if isinstance(error, dict) else error)
