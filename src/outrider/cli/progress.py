"""Showing that something takes its time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from outrider.cli.terminal import Notes
from outrider.models.resolve import resolve


def resolve_with_progress(reference: str, console: Notes) -> Path:
    """Return where a model lies, with a progress bar if it has to be downloaded first."""
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    bar = Progress(TextColumn("fetching {task.description}"), *columns, console=console)
    task = bar.add_task(reference)

    def show(done: int, total: int) -> None:
        bar.start()  # at the first news: most models are here already
        bar.update(task, completed=done, total=total)

    def tell(path: Path) -> None:
        console.say(f"another process is fetching {reference}; waiting for it ({path})")

    try:
        return resolve(reference, os.environ, progress=show, waiting=tell)
    finally:
        if bar.live.is_started:  # stopping a bar that never moved would print an empty line
            bar.stop()


@contextmanager
def loading(console: Notes, doing: str = "loading") -> Iterator[Callable[[str], Path]]:
    """Show what is being done with models, on a terminal; yield what finds them by name meanwhile."""
    if not console.is_terminal:
        yield lambda reference: resolve_with_progress(reference, console)
        return
    with console.status(f"{doing} ...") as status:

        def resolver(reference: str) -> Path:
            status.stop()  # a terminal has room for one moving thing
            path = resolve_with_progress(reference, console)
            status.start()
            return path

        yield resolver


@contextmanager
def counting(console: Notes, what: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show how much of something is done, on a terminal; yield what counts one and says a line about it."""
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal
    with Progress(TextColumn("{task.description}"), *columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(what, total=total)

        def count(line: str) -> None:
            console.say(line)
            bar.advance(task)

        yield count
