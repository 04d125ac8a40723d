"""The command line: one file a command. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper

import typer

from outrider.cli import generate, models
from outrider.errors import OutriderError

app = typer.Typer(
    name="outrider",
    help="Faster answers from language models on CPUs, not one word changed.",
    add_completion=False,
    rich_markup_mode=None,
)
app.command()(generate.generate)
app.add_typer(models.app, name="models")

# Typer's errors are Click's; depending on its version, those of a copy of its own.
_BadUsage: type[Exception] = import_module(typer.BadParameter.__module__).ClickException


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: the answer is no. 2: bad usage or input, said in one line on stderr. 130: interrupted. 141: whoever
    read our output has gone.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for terminals that cannot show what a model says
    command = typer.main.get_command(app)
    args = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        with command.make_context("outrider", args) as context:
            status = command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as request:
        return request.exit_code
    except (OutriderError, MemoryError, _BadUsage) as error:
        sys.stderr.write(f"outrider: {' '.join(_explain(error).split())}\n")
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        _drop_output()
        sys.stderr.write(f"outrider: {error.filename or 'the output cannot be written'}: {error.strerror or error}\n")
        return 2
    return status if isinstance(status, int) else 0


def _drop_output() -> None:
    """Keep the flush at exit from failing once more."""
    with suppress(OSError, ValueError):  # not a file of the system's, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _explain(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}); use a smaller model, or a smaller --ctx-size"
    if isinstance(error, _BadUsage):
        return f"{error.format_message().rstrip('.')}; see outrider --help"  # type: ignore[attr-defined]
    return str(error)
