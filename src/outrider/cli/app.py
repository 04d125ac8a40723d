"""Runs a command, and turns whatever ends it into one line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated

import typer

from outrider.cli import audit, bench, generate, models, plan, serve
from outrider.cli.text import one_line, write_line
from outrider.errors import OutriderError, UsageError

app = typer.Typer(
    name="outrider",
    help="Faster answers from language models on CPUs, not one word changed.",
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if wanted:
        write_line(f"outrider {import_module('importlib.metadata').version('outrider')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


app.command()(generate.generate)
app.command()(bench.bench)
app.command()(plan.plan)
app.command()(serve.serve)
app.add_typer(models.app, name="models")
app.add_typer(audit.app, name="audit")

# Typer's errors are Click's; depending on its version, those of a copy of its own.
_BadUsage: type[Exception] = import_module(typer.BadParameter.__module__).ClickException


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; see :func:`outrider.cli.main`."""
    _fill_closed_streams()
    try:
        if sys.stdout is None:
            raise UsageError("standard output is closed; send it to a file, or to /dev/null")
        status = _invoke(list(sys.argv[1:] if argv is None else argv) or ["--help"])
        sys.stdout.flush()
    except typer.Abort:
        status = 130
    except BrokenPipeError:
        status = 141
    except (OutriderError, MemoryError, _BadUsage, OSError) as error:
        with suppress(OSError):  # there may be nowhere to say it
            sys.stderr.write(f"outrider: {one_line(_explain(error))}\n")
        status = 2
    _drop_what_cannot_be_written()
    return status


def _invoke(args: list[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals that cannot show what a model says
    try:
        with typer.main.get_command(app).make_context("outrider", args) as context:
            status = context.command.invoke(context)
    except typer.Exit as request:
        return request.exit_code
    return status if isinstance(status, int) else 0


def _fill_closed_streams() -> None:
    """Put the null device where a standard stream is closed, or the next file opened would become that stream."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their numbers: the lowest free one is taken
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if name == "stderr":
                sys.stderr = os.fdopen(descriptor, "w")


def _drop_what_cannot_be_written() -> None:
    """Keep the flush at exit from failing once more, which would change the exit status."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:  # noqa: PERF203  (there are two of them)
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _explain(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}); use a smaller model, or a smaller --ctx-size"
    if isinstance(error, _BadUsage):
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "outrider"
        return f"{error.format_message().rstrip('.')}; see {command} --help"  # type: ignore[attr-defined]
    if isinstance(error, OSError):  # of the output, since whatever is read has errors of its own
        return f"{error.filename or 'the output cannot be written'}: {error.strerror or error}"
    return str(error)
