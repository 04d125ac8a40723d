"""``outrider audit``: prove that what is emitted is what the target would have said."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.audit_endpoint import endpoint
from outrider.cli.flags import number, speaking_of_flags, whole, with_flags
from outrider.cli.text import write_line
from outrider.errors import UsageError

if TYPE_CHECKING:
    from outrider.audit.certificate import Certificate
    from outrider.audit.pair import Wish

app = typer.Typer(help="Prove that speculation changes nothing, with a certificate.", rich_markup_mode=None)
app.command("endpoint")(endpoint)

_AsJson = Annotated[bool, typer.Option("--json", help="Print the certificate instead of what it says.")]
_Out = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write the certificate here, as JSON, and beside it a page for people (.html)."),
]


def _wholes(text: str) -> tuple[int, ...]:
    return tuple(whole(one) for one in text.split(","))


@dataclass(frozen=True, slots=True)
class PairFlags:
    """What is audited, and how; one field a flag."""

    target: Annotated[str, typer.Option(metavar="REF", help="The model that answers.")]
    draft: Annotated[str, typer.Option(metavar="REF|ngram", help="What proposes tokens, as for generate.")]
    draft_options: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="How a draft model is held, as for generate.")
    ] = None
    draft_tree: Annotated[
        int, typer.Option(metavar="N", parser=whole, help="Let a draft model propose trees, as for generate.")
    ] = 0
    rule: Annotated[
        str, typer.Option(metavar="auto|token|block|coupled", help="How drafts are verified, as for generate.")
    ] = "auto"
    num_speculative_tokens: Annotated[
        Any,
        typer.Option(
            metavar="N,...", parser=_wholes, help="The most draft tokens a round: draws at the first, texts at each."
        ),
    ] = "6,1"
    threads: Annotated[
        Any,
        typer.Option(
            metavar="N,...",
            parser=_wholes,
            help="Threads that compute: draws at the first, texts at each. [default: one a physical core]",
        ),
    ] = None
    batches: Annotated[
        Any, typer.Option(metavar="N,...", parser=_wholes, help="Answers side by side that texts are compared at.")
    ] = "1,3"
    temperature: Annotated[float, typer.Option(metavar="T", parser=number, help="Of the draws; above 0.")] = 1.0
    top_p: Annotated[float | None, typer.Option(metavar="P", parser=number, help="As for generate.")] = None
    top_k: Annotated[int | None, typer.Option(metavar="K", parser=whole, help="As for generate.")] = None
    min_p: Annotated[float | None, typer.Option(metavar="P", parser=number, help="As for generate.")] = None
    presence_penalty: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            parser=number,
            help="As for generate; a draft of another vocabulary then proposes token by token, and not text.",
        ),
    ] = None
    prompts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="JSON lines with prompt. [default: a few that are built in]"),
    ] = None
    draws: Annotated[
        int, typer.Option(metavar="N", parser=whole, help="How many times tokens are drawn, over all places.")
    ] = 54_000
    seed: Annotated[int, typer.Option(metavar="N", parser=whole, help="Of every random decision.")] = 0
    no_chat: Annotated[bool, typer.Option("--no-chat", help="As for generate.")] = False
    state: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keep counts in this file, and go on from it if it exists.")
    ] = None

    def wish(self) -> Wish:
        """Return what the flags ask for."""
        from outrider.audit.pair import Wish
        from outrider.audit.sampled import Budget
        from outrider.cli.draft_options import parse_draft_options
        from outrider.sampling.params import SamplingParams

        with speaking_of_flags():
            return Wish(
                target=self.target,
                draft=self.draft,
                params=SamplingParams(
                    temperature=self.temperature,
                    top_p=self.top_p,
                    top_k=self.top_k,
                    min_p=self.min_p,
                    presence_penalty=self.presence_penalty,
                ),
                rule=self.rule,
                draft_options=parse_draft_options(self.draft_options or ()),
                draft_tree=self.draft_tree,
                chat=not self.no_chat,
                lengths=self.num_speculative_tokens,
                threads=self.threads or (None,),
                batches=self.batches,
                budget=Budget(draws=self.draws, seed=self.seed),
            )


@app.command("pair")
@with_flags
def audit_pair(*, flags: PairFlags, out: _Out = None, as_json: _AsJson = False) -> int:
    """Audit a target with its draft on this machine.

    Texts are compared with plain decoding's, and draws held against the target's exact law. Takes some minutes.

    Exit status 1 unless the verdict is "pass".
    """
    from outrider.audit.pair import audit_pair
    from outrider.audit.texts import PROMPTS
    from outrider.cli.progress import loading
    from outrider.cli.prompts import read_prompts
    from outrider.cli.terminal import Notes

    check_places(out)
    prompts, state = flags.prompts, flags.state
    texts = list(PROMPTS) if prompts is None else [(one.id, one.text) for one in read_prompts(prompts)]
    notes = Notes()
    with speaking_of_flags(PairFlags), loading(notes, "auditing") as resolver:
        certificate = audit_pair(
            flags.wish(),
            texts,
            command=command(),
            now=_now(),
            resolver=resolver,
            state=None if state is None else _checked(state),
            report=notes.say,
        )
    return finish(certificate, out, as_json=as_json)


@app.command("exact")
def audit_exact(*, out: _Out = None, as_json: _AsJson = False) -> int:
    """Prove every rule on toy models, with no chance left.

    Each rule with every kind of draft, and whole answers with every kind of parameter.

    Exit status 1 unless the verdict is "pass".
    """
    from outrider.audit.exact import audit_exact
    from outrider.cli.terminal import Notes

    check_places(out)
    return finish(audit_exact(command=command(), now=_now(), report=Notes().say), out, as_json=as_json)


@app.command("check")
def check_certificate(
    certificate: Annotated[str, typer.Argument(metavar="CERTIFICATE", help="A certificate's JSON.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> int:
    """Do a certificate's sums again, from counts to verdict.

    Exit status 1 if they do not come out.
    """
    from outrider.audit.certificate import certificate_from_json, check
    from outrider.audit.completeness import missing
    from outrider.audit.reading import read_document

    document = read_document(_checked(certificate), "certificate")
    problems = check(document) + missing(certificate_from_json(document))
    if as_json:
        write_line(json.dumps({"holds": not problems, "verdict": document.get("verdict"), "problems": problems}))
    elif problems:
        write_line("the certificate does not follow from its own counts:")
        for problem in problems:
            write_line(f"  {problem}")
    else:
        write_line(f"the arithmetic holds; the verdict is {document['verdict']}: {document['reason']}")
    return 1 if problems else 0


def finish(certificate: Certificate, out: str | None, *, as_json: bool) -> int:
    """Write a certificate where it is wanted, and return the exit status that its verdict stands for."""
    from outrider.audit.page import page
    from outrider.audit.state import write_whole

    document = certificate.to_json()
    if out is not None:
        path, beside = _places(out)
        write_whole(path, json.dumps(document, indent=1) + "\n")
        write_whole(beside, page(document))
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        write_line(f"{document['verdict']}: {document['reason']}")
        write_line(
            "no certificate was written; name a file with --out"
            if out is None
            else f"the certificate is in {path}, and its page in {beside}"
        )
    return 0 if document["verdict"] == "pass" else 1


def check_places(out: str | None) -> None:
    """Find out whether a certificate can be written before minutes are spent.

    Raises:
        UsageError: It cannot.
    """
    for path in () if out is None else _places(out):
        folder = path.absolute().parent
        if path.is_dir() or not folder.is_dir():
            raise UsageError(f"--out is {out!r}; {path} is no file in a directory that exists; name another")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"--out is {out!r}; nothing can be written in {folder}; name another")


def _places(out: str) -> tuple[Path, Path]:
    """Return where a certificate and its page go, whichever of the two was named."""
    path = _checked(out)
    page = path.with_suffix(".html")
    return (path.with_suffix(".json") if path == page else path), page


def command() -> str:
    """Return the command that is being run, with the names of files and not where they lie."""
    return shlex.join(
        ["outrider", *(Path(word).name if "/" in word and "://" not in word else word for word in sys.argv[1:])]
    )


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _checked(path: str) -> Path:
    if not path:
        raise UsageError("the name of a file is empty; name one, or leave it out")
    if "\0" in path:
        raise UsageError(f"{path!r} is no name of a file; name one, or leave it out")
    return Path(path)
