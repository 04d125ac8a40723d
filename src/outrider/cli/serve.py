"""``outrider serve``: an OpenAI-compatible server."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.flags import EngineFlags, number, speaking_of_flags, whole, with_flags
from outrider.cli.prompts import read_text
from outrider.errors import UsageError

if TYPE_CHECKING:
    from outrider.server.settings import Settings

KEY_VARIABLE = "OUTRIDER_API_KEY"


@dataclass(frozen=True, slots=True)
class ServeFlags(EngineFlags):
    """The flags of a server."""

    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(metavar="N", parser=whole, help="0 takes one that is free.")] = 8000
    api_key_file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="API keys, one a line, any of which is asked for; one more may be in the variable OUTRIDER_API_KEY.",
        ),
    ] = None
    max_sequences: Annotated[
        int, typer.Option(metavar="N", parser=whole, help="How many answers are worked on side by side.")
    ] = 8
    max_waiting: Annotated[
        int, typer.Option(metavar="N", parser=whole, help="How many more may wait; others are told to come back.")
    ] = 64
    cache_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole,
            help="The most tokens in the caches, those kept for prompts that begin alike included. [default: 4096 for "
            "each of max-sequences, and no fewer than --ctx-size]",
        ),
    ] = None
    max_body: Annotated[int, typer.Option(metavar="BYTES", parser=whole, help="The largest request.")] = 4 << 20
    request_timeout: Annotated[
        float, typer.Option(metavar="S", parser=number, help="How long an answer may take, its wait included.")
    ] = 600.0
    shutdown_timeout: Annotated[
        float, typer.Option(metavar="S", parser=number, help="How long what runs may go on after SIGTERM.")
    ] = 30.0
    log_text: Annotated[bool, typer.Option("--log-text", help="Log prompts and answers, too.")] = False

    def settings(self) -> Settings:
        """Return how the server runs.

        Raises:
            UsageError: A flag is out of range.
        """
        from outrider.server.settings import Settings

        for name, least in (("max_sequences", 1), ("max_waiting", 0), ("max_body", 1), ("port", 0)):
            if getattr(self, name) < least:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least {least}")
        for name in ("request_timeout", "shutdown_timeout"):
            if not 0 < getattr(self, name) < float("inf"):
                problem = f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be a number of seconds above 0"
                raise UsageError(problem)
        if self.port >= 1 << 16:
            raise UsageError(f"--port is {self.port}; it must be at most 65535")
        return Settings(
            max_sequences=self.max_sequences,
            max_waiting=self.max_waiting,
            max_cached_tokens=self.cache_tokens,
            max_body_bytes=self.max_body,
            request_timeout_s=self.request_timeout,
            shutdown_timeout_s=self.shutdown_timeout,
            api_keys=_keys(self.api_key_file),
            logs_text=self.log_text,
        )


@with_flags
def serve(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")] = False,
    flags: ServeFlags,
) -> None:
    """Answer OpenAI's API, and serve a page to try it with at /.

    One line on stderr says what is loaded and where it is served; after it the log follows, a JSON object a line.
    SIGTERM and Ctrl-C let what runs come to its end.
    """
    from outrider.cli.terminal import Notes
    from outrider.server.running import reserve
    from outrider.server.running import serve as run

    settings = flags.settings()
    with closing(reserve(flags.host, flags.port)) as address, speaking_of_flags():
        llm = flags.load(Notes())
        # What is there now stays. To look through all of it for garbage takes as long as five rounds of a small model.
        gc.freeze()
        cut_off = run(llm, settings, address, flags.host)
    if as_json:
        sys.stdout.write(json.dumps({"cut_off": cut_off}) + "\n")


def _keys(path: str | None) -> tuple[str, ...]:
    lines = [] if path is None else read_text(path).splitlines()
    keys = [key for line in (*lines, os.environ.get(KEY_VARIABLE, "")) if (key := line.strip())]
    if path is not None and not keys:
        raise UsageError(f"--api-key-file {path} has no key; write one a line")
    for key in keys:
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError("an API key must be printable ASCII without blanks, for it travels in a header")
    return tuple(keys)
