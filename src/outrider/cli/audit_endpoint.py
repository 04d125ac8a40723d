"""``outrider audit endpoint``: audit any server with the OpenAI API."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from outrider.cli.flags import number, whole, with_flags
from outrider.cli.prompts import read_prompts
from outrider.errors import UsageError
from outrider.models.fields import shown

if TYPE_CHECKING:
    from outrider.audit.endpoint.checks import Check
    from outrider.audit.endpoint.client import Server
    from outrider.audit.endpoint.plan import Plan
    from outrider.cli.terminal import Notes
    from outrider.engine.loading import Model

_EVERY = 500  # answers between two lines of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFlags:
    """The flags of the audit of a server."""

    base_url: Annotated[
        str, typer.Option(metavar="URL", help="The server to audit, as OpenAI's clients take it: http://host:port/v1.")
    ]
    baseline_url: Annotated[
        str | None, typer.Option(metavar="URL", help="The same server and model without speculation.")
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            metavar="REF", help="Without one, the model it serves: a path, a catalog name or hf:owner/repo/file."
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model by its name there. [default: the first it lists]")
    ] = None
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The environment variable with the key, for both servers.")
    ] = None
    extra_body: Annotated[
        str, typer.Option(metavar="JSON", help="More fields for every request, by the names that this server has.")
    ] = "{}"
    prompts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Prompts with few likely answers, as JSON lines. [default: our own]"),
    ] = None
    total_variation: Annotated[
        float, typer.Option("--tv", metavar="TV", parser=number, help="The total variation that must not go unnoticed.")
    ] = 0.05
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole,
            help="Sampled answers of each server. [default: what --tv is likely to take; 200 a prompt at least]",
        ),
    ] = None
    near_tie: Annotated[
        float,
        typer.Option(
            metavar="NATS", parser=number, help="Greedy answers may part where two tokens are as near as this."
        ),
    ] = 0.1
    max_requests: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole, help="Send no more requests than this. [default: what is estimated]"),
    ] = None
    concurrency: Annotated[int, typer.Option(metavar="N", parser=whole, help="Requests at a time.")] = 4
    timeout: Annotated[
        float, typer.Option(metavar="S", parser=number, help="Seconds to wait for an answer, each time.")
    ] = 60.0
    yes: Annotated[bool, typer.Option("--yes", help="Start without asking whether the cost is agreed to.")] = False

    def server(self) -> Server:
        """Return the server to audit, and how to treat it.

        Raises:
            UsageError: A flag is out of range.
        """
        from outrider.audit.endpoint.client import Server

        return Server(
            base_url=self.base_url,
            model=self.model,
            api_key=_key(self.api_key_env),
            extra=_fields(self.extra_body),
            timeout_s=self.timeout,
            concurrency=self.concurrency,
        )

    def plan(self) -> Plan:
        """Return what is asked."""
        from outrider.audit.endpoint.plan import Plan

        return Plan(
            prompts=() if self.prompts is None else tuple(one.text for one in read_prompts(self.prompts)),
            total_variation=self.total_variation,
            budget=self.budget or 0,
            near_tie=self.near_tie,
        )

    def check(self) -> None:
        """Check what is known before anybody is asked.

        Raises:
            UsageError: A flag is out of range.
        """
        if self.baseline_url is not None and self.target is not None:
            raise UsageError("--baseline-url and --target are both given; the baseline alone is the better comparison")
        values = {
            "--tv": self.total_variation,
            "--near-tie": self.near_tie,
            "--timeout": self.timeout,
            "--concurrency": self.concurrency,
            "--budget": self.budget,
            "--max-requests": self.max_requests,
        }
        for name, value in values.items():
            if value is not None and not 0 < value < 1 << 31:
                raise UsageError(f"{name} is {value}; it must be above 0")
        if not self.total_variation < 1:
            raise UsageError(f"--tv is {self.total_variation}; it must be below 1")


@with_flags
def endpoint(
    *,
    flags: EndpointFlags,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the certificate here, as JSON, and beside it a page for people (.html)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> int:
    """Find out whether speculation changes what a server says.

    Exit status: 0 if it passes; 1 if it fails, or if nothing could be concluded; 2 if it cannot be asked at all.
    """
    from outrider.audit.endpoint.certify import EndpointAudit, Surroundings
    from outrider.audit.provenance import versions
    from outrider.cli.audit import check_places, command, finish
    from outrider.cli.terminal import Notes

    flags.check()
    check_places(out)
    notes, server, plan = Notes(), flags.server(), flags.plan()
    progress = _Progress(notes)
    around = Surroundings(time.sleep, lambda: datetime.now(timezone.utc), versions(), seed=0, progress=progress)
    baseline = None if flags.baseline_url is None else replace(server, base_url=flags.baseline_url)
    load = None if flags.target is None else partial(_load, flags.target, notes)
    audit = EndpointAudit(server, baseline, load, plan, around, max_requests=flags.max_requests)
    try:
        notes.say(f"this takes {audit.cost()}")
        if not flags.yes:
            if not sys.stdin.isatty():
                raise UsageError("nobody is there to agree to that cost; add --yes, and --max-requests for a limit")
            typer.confirm("start?", abort=True, err=True)
        certificate = audit.run(lambda check: notes.say(_line(check, plan.level)), command())
    finally:
        audit.close()
    return finish(certificate, out, as_json=as_json)


class _Progress:
    """Says what goes on, and every few hundred answers how far it is."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._what, self._num = "", 0

    def __call__(self, what: str, num: int) -> None:
        if what != self._what:
            self._what, self._num = what, 0
        self._num += num
        if num and self._num // _EVERY > (self._num - num) // _EVERY:
            self._notes.say(f"{what}: {self._num} answers")


def _line(check: Check, level: float) -> str:
    return f"{check.verdict(level)}: {check.evidence.name}: {check.summary}"


def _load(reference: str, notes: Notes) -> tuple[Model, dict[str, Any]]:
    from outrider.audit.provenance import model_files
    from outrider.cli.progress import loading
    from outrider.engine.loading import load_model

    with loading(notes) as resolver:
        path = resolver(reference)
        return load_model(path), model_files(path)


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    key = os.environ.get(name)
    if not key:
        raise UsageError(f"--api-key-env is {name!r}, and that variable is not set; export the key in it")
    return key


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _fields(text: str) -> dict[str, Any]:
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--extra-body is {shown(text)}, which is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UsageError(f'--extra-body is {shown(text)}; it must be an object, as {{"top_k": 0}}')
    return fields
