"""How a server runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The limits of a server and what it tells of itself.

    Attributes:
        max_sequences: How many answers are worked on at a time.
        max_waiting: How many more may wait.
        max_cached_tokens: How many tokens the caches may hold; None for 4096 for each of ``max_sequences``, and no
            fewer than one answer may take.
        max_body_bytes: Of a request.
        request_timeout_s: How long an answer may take, its time in the queue included.
        client_timeout_s: How long a client may take to send a request, or to read what is sent to it.
        shutdown_timeout_s: How long what runs may go on after the signal to stop.
        api_keys: Any of these is asked for; none if nobody needs one.
        logs_text: Whether prompts and answers are logged.
    """

    max_sequences: int = 8
    max_waiting: int = 64
    max_cached_tokens: int | None = None
    max_body_bytes: int = 4 << 20
    request_timeout_s: float = 600.0
    client_timeout_s: float = 30.0
    shutdown_timeout_s: float = 30.0
    api_keys: tuple[str, ...] = ()
    logs_text: bool = False
