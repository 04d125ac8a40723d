"""``outrider models``: what can be had by name, fetching it, and what is known of a model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.text import write_line
from outrider.errors import ModelFileError
from outrider.models.fields import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outrider.engine.draft_check import DraftCheck
    from outrider.models.catalog import CatalogModel

app = typer.Typer(help="List, fetch and inspect models.", rich_markup_mode=None)

_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
_Ref = Annotated[str, typer.Argument(metavar="REF", help="A catalog name, hf:owner/repo[/file], or a path.")]


@app.command("list")
def list_models(*, as_json: _AsJson = False) -> None:
    """List the models that can be had by name, and where they lie."""
    from outrider.models.catalog import CATALOG

    entries = [_entry(model) for model in CATALOG.values()]
    if as_json:
        _print_json({"models": entries})
        return
    rows = [("name", "model", "license", "size", "where")]
    for entry in entries:
        where = entry["path"] or entry.get("problem", "not here yet")
        rows.append((entry["name"], entry["summary"], entry["license"], _size(entry["num_bytes"]), where))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *texts, size, where in rows:
        cells = [text.ljust(width) for text, width in zip(texts, widths, strict=False)]
        write_line("  ".join([*cells, size.rjust(widths[3]), where]))


@app.command("pull")
def pull_model(reference: _Ref, *, as_json: _AsJson = False) -> None:
    """Fetch a model, unless it is here already, and print where it lies."""
    from outrider.cli.progress import resolve_with_progress
    from outrider.cli.terminal import Notes

    notes = Notes()
    path = resolve_with_progress(reference, notes)
    if path == Path(reference).expanduser():
        notes.say(f"{reference} is a path already; there is nothing to fetch")
    if as_json:
        _print_json({"reference": reference, "path": str(path)})
    else:
        write_line(str(path))


@app.command("check")
def check_pair(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The model that answers: a REF.")],
    draft: Annotated[str, typer.Argument(metavar="DRAFT", help="The model that is to draft for it: a REF.")],
    *,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Run the target, to say how much of its probability lies on shared tokens."),
    ] = False,
    prompts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Measure on these texts, JSON lines with prompt, not on a built-in sample."),
    ] = None,
    as_json: _AsJson = False,
) -> int:
    """Say whether a draft model's vocabulary fits a target's.

    And what the engine does about it. Exit status 1 if the draft cannot draft for this target.
    """
    from outrider.cli.progress import loading
    from outrider.cli.prompts import read_prompts
    from outrider.cli.terminal import Notes
    from outrider.engine.draft_check import check_draft
    from outrider.models.vocabularies import SAMPLE

    texts = [SAMPLE] if prompts is None else [prompt.text for prompt in read_prompts(prompts)]
    with loading(Notes()) as resolver:
        check = check_draft(
            target, draft, measure_on=texts if measure or prompts is not None else (), resolver=resolver
        )
    if as_json:
        _print_json(check.to_json())
    else:
        for line in _lines(check):
            write_line(line)
    return 0 if check.comparison.works else 1


@app.command("show")
def show_model(reference: _Ref, *, as_json: _AsJson = False) -> None:
    """Say what is known of a model, without fetching anything.

    Of a catalog model that is not here, what the catalog knows.
    """
    from outrider.models.catalog import CATALOG

    entry = _entry(CATALOG[reference]) if reference in CATALOG else {}
    known = entry if entry and entry["path"] is None else {**_describe(entry.get("path", reference)), **entry}
    if as_json:
        _print_json(known)
        return
    if "file_bytes" in known:  # which is num_bytes, found out
        known.pop("num_bytes", None)
    width = max(map(len, known))
    for name, value in known.items():
        is_id = name.endswith(("_id", "_ids"))
        write_line(f"{name:{width}}  {str(value).strip('[]') if is_id and value is not None else _shown(value)}")


def _lines(check: DraftCheck) -> Iterator[str]:
    """Yield what a check found, as text."""
    from outrider.drafters.compression import DraftOptions

    found = check.comparison
    yield f"{check.draft} as a draft for {check.target}: the vocabularies are {found.relation.value}"
    for name, tokens, size in zip(("target", "draft"), check.num_tokens, check.vocab_sizes, strict=True):
        yield f"  {name}: {tokens:,} tokens, {size:,} with padding"
    if found.differing_ids:
        share = f"{found.shared_in_sample:.1%} of a sample text's tokens"
        yield f"  shared, whatever their ids: {check.num_shared:,} of the target's tokens, {share}"
        yield f"  ids that differ: {len(found.differing_ids):,}"
    for one in check.telling_ids:
        yield f"    {one.token_id}: {shown(one.target)} / {shown(one.draft)}"
    if check.shared_probability is not None:
        yield f"  the target's probability of shared tokens: {check.shared_probability:.2%}"
    yield f"  what the engine does: {found.consequence}"
    if check.file_bytes is not None and not check.is_smaller:
        target, draft = map(_size, check.file_bytes)
        yield f"  the draft is no smaller than the target ({draft}, {target}), so it can hardly make it faster"
    most = DraftOptions().vocab
    if most is not None and check.num_tokens[1] > most:
        rest = "--draft-options vocab=all leaves it all of them"
        yield f"  while it drafts it can say its {most:,} likeliest tokens and those that end an answer; {rest}"


def _describe(reference: str) -> dict[str, Any]:
    from outrider.models.open import open_model
    from outrider.models.resolve import resolve

    return open_model(resolve(reference, os.environ, fetch=False)).describe()


def _entry(model: CatalogModel) -> dict[str, Any]:
    from outrider.models.download import cache_directory, cached_path

    problem = {}
    try:
        path = cached_path(model, cache_directory(os.environ))
    except ModelFileError as error:
        path, problem = None, {"problem": str(error)}
    return {
        "name": model.name,
        "summary": model.summary,
        "license": model.license,
        "num_bytes": model.num_bytes,
        "sha256": model.sha256,
        "path": None if path is None else str(path),
        **problem,
    }


def _shown(value: object) -> str:
    if value is None:
        return "not here yet; outrider models pull fetches it"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_size(size)}" for name, size in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.0f} MB"


def _print_json(document: dict[str, Any]) -> None:
    write_line(json.dumps(document))
