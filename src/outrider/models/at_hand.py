"""Which of the models that are here could draft for a target: the answer to "which small model goes with mine?".

No weights are read and nothing is downloaded. What a draft is worth only measuring says; the order here is that of
likelihood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.errors import ModelFileError, UsageError
from outrider.models.catalog import CATALOG, CatalogModel
from outrider.models.download import cache_directory, cached_path
from outrider.models.files import ModelFiles
from outrider.models.open import open_model
from outrider.models.vocabularies import Comparison, Relation, compare_vocabularies

_SAME_VOCABULARY = (Relation.IDENTICAL, Relation.PADDED, Relation.NEARLY_IDENTICAL)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that could draft.

    Attributes:
        reference: What a user calls it: a catalog name or a path.
        files: The model, opened.
        comparison: How its vocabulary relates to the target's.
        is_family: Whether it is of the target's family: of the same architecture and with the same tokens.
    """

    reference: str
    files: ModelFiles
    comparison: Comparison
    is_family: bool


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A model that is here and could not draft, and why."""

    reference: str
    reason: str


def candidates_for(
    target: ModelFiles, environment: Mapping[str, str], folder: Path | None = None
) -> tuple[list[Candidate], list[LeftOut]]:
    """Return the models at hand that could draft for a target, the likeliest first, and those that could not.

    First come those of the same family, then others with the same tokens, then others; among equals the smallest.

    Args:
        target: The model that answers.
        environment: Says where the models of the catalog are kept.
        folder: Where to look besides: at its GGUF files, and at directories in it with ``config.json``.

    Raises:
        UsageError: The folder cannot be listed.
    """
    found: list[Candidate] = []
    left_out: list[LeftOut] = []
    seen = {target.fingerprint}
    for reference, path in _at_hand(environment, folder):
        try:
            files = open_model(path)
        except ModelFileError as error:
            left_out.append(LeftOut(reference, str(error)))
            continue
        if files.fingerprint in seen:
            continue
        seen.add(files.fingerprint)
        comparison = compare_vocabularies(target.tokenizer, files.tokenizer)
        if files.file_bytes >= target.file_bytes:
            left_out.append(LeftOut(reference, "it is no smaller than the target"))
        elif not comparison.works:
            left_out.append(LeftOut(reference, comparison.consequence))
        else:
            is_family = comparison.relation in _SAME_VOCABULARY and (
                files.config.architecture == target.config.architecture
            )
            found.append(Candidate(reference, files, comparison, is_family))
    found.sort(key=lambda one: (not one.is_family, one.comparison.relation is Relation.OVERLAPPING, _size(one)))
    return found, left_out


def _size(candidate: Candidate) -> int:
    return candidate.files.file_bytes


def _at_hand(environment: Mapping[str, str], folder: Path | None) -> Iterator[tuple[str, Path]]:
    """Yield what models are called and where they lie."""
    cache = cache_directory(environment)
    for model in CATALOG.values():
        path = _cached(model, cache)
        if path is not None:
            yield model.name, path
    if folder is None:
        return
    try:
        entries = sorted(folder.iterdir())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the folder {folder} cannot be listed: {reason}; name a directory with models") from error
    for entry in entries:
        if entry.suffix == ".gguf" or (entry / "config.json").is_file():
            yield str(entry), entry


def _cached(model: CatalogModel, cache: Path) -> Path | None:
    try:
        return cached_path(model, cache)
    except ModelFileError:  # of which `outrider models list` tells
        return None
