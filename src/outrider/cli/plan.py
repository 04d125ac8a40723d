"""``outrider plan``: whether a draft pays, which one and how long, from figures of this machine."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.flags import Flags, speaking_of_flags, with_flags
from outrider.errors import UsageError

if TYPE_CHECKING:
    from outrider.cli.terminal import Notes
    from outrider.planner.document import Plan
    from outrider.planner.make import Wish
    from outrider.planner.measuring import Progress

_RUN = 6  # choices under --validate
_OWN = ("target", "draft", "num_speculative_tokens", "store", "draft_tree", "plan")
_Target = Annotated[
    str | None,
    typer.Option(
        metavar="REF", help="The model that answers: a path, a catalog name, or hf:owner/repo[/file]. [required]"
    ),
]


@partial(with_flags, without=_OWN)
def plan(  # noqa: PLR0913 - each is a flag
    *,
    target: _Target = None,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REF|ngram",
            help="What may draft; may be repeated. [default: every model at hand that fits the target, and ngram]",
        ),
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="DIR", help="Without --draft, look for models in this directory, too.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Prompts like yours: JSON lines with prompt and, if wanted, id, family; - is stdin. [required]",
        ),
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Run the most promising choices, and show what they give.")
    ] = False,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keep the plan, for --plan of the commands that generate.")
    ] = None,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write a page of HTML with plots.")] = None,
    require: Annotated[
        bool, typer.Option("--require", help="End with status 1 if the answer is not to speculate.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")] = False,
    flags: Flags,
) -> int:
    """Say whether a draft pays here, which one, and how much of it.

    Measures this machine, the models and your prompts. Takes some minutes. At most 96 tokens of each
    answer are looked at, and as many prompts as there is time for.
    """
    from outrider.cli.plan_tables import show_plan
    from outrider.cli.terminal import Notes
    from outrider.planner.document import to_json

    for name, path in (("--save", save), ("--report", report)):
        _check_place(name, path)
    wish = _wish(replace(flags, target=target), draft, models, prompts, num_run=_RUN if validate else 0)
    made = _make(wish, flags, Notes())
    document = to_json(made)
    if save is not None:
        Path(save).write_text(document + "\n", encoding="utf-8")
    if report is not None:
        _write_report(made, Path(report))
    if as_json:
        sys.stdout.write(document + "\n")
    else:
        show_plan(made, save)
    return 1 if require and not made.speculates else 0


def _check_place(name: str, path: str | None) -> None:
    """Find out whether a file can be written before minutes are spent."""
    if path is None:
        return
    if not path or "\0" in path:
        raise UsageError(f"{name} is {path!r}; name a file")
    folder = Path(path).absolute().parent
    if Path(path).is_dir() or not folder.is_dir():
        raise UsageError(f"{name} is {path!r}, which is no file in a directory that exists; name another")
    if not os.access(path if Path(path).exists() else folder, os.W_OK):
        raise UsageError(f"{name} is {path!r}, which cannot be written; name another")


def _wish(flags: Flags, draft: list[str] | None, models: str | None, prompts: str | None, *, num_run: int) -> Wish:
    from outrider.cli.draft_options import parse_draft_options
    from outrider.cli.prompts import read_prompts
    from outrider.engine.rules import parse_rule
    from outrider.planner.make import Wish

    if not flags.target:
        raise UsageError("no --target given; name a model: a path, hf:owner/repo, or one of outrider models list")
    if prompts is None:
        raise UsageError(
            "no --prompts given; what a draft gains depends on what is asked, so name a file of prompts like yours, "
            'one {"prompt": "...", "family": "..."} a line'
        )
    drafts = [name.strip() for given in draft or () for name in given.split(",")]
    for name in drafts:
        if not name:
            raise UsageError("--draft is empty; name a smaller model, or ngram, or leave it out for all models at hand")
        if name in ("auto", "none"):
            raise UsageError(
                f"--draft is {name!r}; name what may draft, or leave it out: plain decoding always takes part"
            )
    if models is not None and drafts:
        raise UsageError("--models is a place to look for drafts, and --draft names them; give one of the two")
    with speaking_of_flags():
        return Wish(
            target=flags.target,
            drafts=tuple(drafts),
            prompts=read_prompts(prompts),
            params=flags.params(),
            rule=parse_rule(flags.rule),
            chat=not flags.no_chat,
            draft_options=parse_draft_options(flags.draft_options or ()),
            threads=flags.threads,
            ctx_size=flags.ctx_size,
            folder=None if models is None else Path(models),
            num_run=num_run,
        )


def _make(wish: Wish, flags: Flags, notes: Notes) -> Plan:
    from outrider.cli.progress import resolve_with_progress
    from outrider.planner.make import Surroundings, make_plan

    seed = secrets.randbits(32) if flags.seed is None else flags.seed
    with speaking_of_flags(), _showing(notes) as progress:
        return make_plan(
            wish,
            Surroundings(
                resolver=lambda reference: resolve_with_progress(reference, notes),
                environment=os.environ,
                clock=time.perf_counter,
                today=datetime.now(timezone.utc),
                seed=seed,
                progress=progress,
            ),
        )


def _write_report(made: Plan, path: Path) -> None:
    from outrider.audit.provenance import own_version
    from outrider.cli.audit import command
    from outrider.planner.report import html_report

    path.write_text(html_report(made, command=command(), version=own_version()), encoding="utf-8")


@contextmanager
def _showing(notes: Notes) -> Iterator[Progress]:
    """Show how far a plan is: a bar on a terminal, a line for each step elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from outrider.cli.text import one_line

    told: list[str] = []
    hidden = not notes.is_terminal
    columns = (BarColumn(), TimeElapsedColumn())
    with Progress(
        TextColumn("{task.description}", markup=False), *columns, console=notes, transient=True, disable=hidden
    ) as bar:
        task = bar.add_task("planning", total=1.0)

        def show(what: str, share: float) -> None:
            bar.update(task, description=one_line(what), completed=min(1.0, share))
            step = what.split(":")[0]
            if hidden and step not in told[-1:]:
                told.append(step)
                notes.say(f"planning: {step}")

        yield show
