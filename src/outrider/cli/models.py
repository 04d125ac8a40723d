"""``outrider models``: what can be had by name, fetching it, and what is known of a model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.text import write_line
from outrider.errors import ModelFileError

if TYPE_CHECKING:
    from outrider.models.catalog import CatalogModel

app = typer.Typer(help="List, fetch and inspect models.", rich_markup_mode=None)

_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
_Ref = Annotated[str, typer.Argument(metavar="REF", help="A catalog name, hf:owner/repo[/file], or a path.")]


@app.command("list")
def list_models(*, as_json: _AsJson = False) -> None:
    """List the models that can be had by name, and where those lie that are here."""
    from outrider.models.catalog import CATALOG

    entries = [_entry(model) for model in CATALOG.values()]
    if as_json:
        _print_json({"models": entries})
        return
    widths = [max(len(entry[field]) for entry in entries) for field in ("name", "summary", "license")]
    for entry in entries:
        texts = (entry["name"], entry["summary"], entry["license"])
        cells = [text.ljust(width) for text, width in zip(texts, widths, strict=True)]
        where = entry["path"] or entry.get("problem", "not here yet")
        write_line("  ".join([*cells, f"{_size(entry['num_bytes']):>7}", where]))


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


@app.command("show")
def show_model(reference: _Ref, *, as_json: _AsJson = False) -> None:
    """Say what is known of a model, without fetching anything; of a catalog model not here, what the catalog knows."""
    from outrider.models.catalog import CATALOG

    entry = _entry(CATALOG[reference]) if reference in CATALOG else {}
    known = entry if entry and entry["path"] is None else {**_describe(entry.get("path", reference)), **entry}
    if as_json:
        _print_json(known)
        return
    width = max(map(len, known))
    for name, value in known.items():
        write_line(f"{name:{width}}  {_shown(value)}")


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
