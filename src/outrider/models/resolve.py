"""From what a user calls a model to where it lies on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from outrider.errors import ModelFileError, UsageError
from outrider.models import hub
from outrider.models.catalog import CATALOG
from outrider.models.download import Progress, cache_directory, cached_path, pull


def resolve(
    reference: str,
    environment: Mapping[str, str],
    *,
    fetch: bool = True,
    progress: Progress | None = None,
    waiting: Callable[[Path], None] | None = None,
) -> Path:
    """Return the path of a model, downloading it if it is not there yet.

    Args:
        reference: A catalog name, ``hf:owner/repo[@revision][/file.gguf]``, or a path. A catalog name comes before a
            path of that name: write ``./name`` for the path.
        environment: Says where catalog models are kept; see :func:`~outrider.models.download.cache_directory`.
        fetch: Whether to download; without, nobody is asked for anything.
        progress: Told of bytes while a catalog model is downloaded.
        waiting: See :func:`~outrider.models.download.pull`.

    Raises:
        UsageError: The reference is none of the three, or the cache has no place.
        ModelFileError: The path does not exist or may not be looked at, or the model is not here and was not to be
            downloaded.
        DownloadError: The model cannot be had.
    """
    if not reference:
        raise UsageError(
            f"the reference to a model is empty; give one of {', '.join(CATALOG)}, a path or hf:owner/repo"
        )
    if reference.startswith("hf:"):
        return hub.locate(reference, fetch=fetch)
    if reference in CATALOG:
        model, cache = CATALOG[reference], cache_directory(environment)
        found = pull(model, cache, progress=progress, waiting=waiting) if fetch else cached_path(model, cache)
        if found is None:
            raise ModelFileError(f"{reference} is not here; outrider models pull {reference} fetches it")
        return found
    path = Path(reference)
    try:
        path = path.expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except RuntimeError as error:
        raise ModelFileError(f"there is no home directory for {reference}; write the path out") from error
    except (OSError, ValueError) as error:  # ValueError: no path at all
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{reference} cannot be read: {reason}; check the path and its permissions") from error
    else:
        return path
    if "/" in reference or path.suffix in {".gguf", ".safetensors"}:
        raise ModelFileError(f"there is no file {reference}; check the path, or give one of {', '.join(CATALOG)}")
    near = get_close_matches(reference.lower(), CATALOG, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"unknown model {reference!r}; {hint}the catalog has {', '.join(CATALOG)}; a path or hf:owner/repo will do too"
    )
