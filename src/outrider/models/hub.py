"""Models of the Hugging Face hub, by ``hf:owner/repo[@revision][/file.gguf]``; a slash in a revision is written %2F.

huggingface_hub does the work, so its cache, tokens, mirrors and offline mode apply as everywhere else.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from outrider.errors import DownloadError, ModelFileError, UsageError

_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>(?:[\w.-]|%2[Ff])+))?(?:/(?P<file>[^@]+))?")
# All that is read of a repository: data, never code or pickles.
_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
_WEIGHTS = ["*.safetensors", "model.safetensors.index.json"]
_OTHER_WEIGHTS = ["*/*", "consolidated*"]  # the same weights again in another layout, or those of another model


def locate(reference: str, *, fetch: bool = True) -> Path:
    """Return the local path of a hub model, downloading what is not in the hub's cache.

    Args:
        reference: A repository with safetensors, or one GGUF file of a repository.
        fetch: Whether to download; without, the hub is not asked for anything.

    Raises:
        UsageError: The reference is malformed or names a file that is not GGUF.
        ModelFileError: It is not in the hub's cache and was not to be downloaded.
        DownloadError: The hub does not have it, or does not give it.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise UsageError(
            f"{reference!r} is not a hub model; write hf:owner/repo, hf:owner/repo@revision or .../file.gguf"
        )
    repo, file = match["repo"], match["file"]
    revision = unquote(match["revision"]) if match["revision"] else None
    if revision == "refs" or ".." in (revision or "").split("/"):
        raise UsageError(f"{reference!r} names revision {revision!r}; write its slashes as %2F: @refs%2Fpr%2F1")
    if file is not None and (not file.endswith(".gguf") or ".." in file.split("/")):
        hint = f" (the slashes of a revision are written %2F: @{revision}%2F...)" if revision else ""
        raise UsageError(
            f"{reference!r} names the file {file!r}{hint}; name a .gguf file, or the repository for its safetensors"
        )
    import huggingface_hub  # noqa: PLC0415  (slow to import, and most runs need no hub)

    try:
        if file is not None:
            return Path(huggingface_hub.hf_hub_download(repo, file, revision=revision, local_files_only=not fetch))
        directory = Path(
            huggingface_hub.snapshot_download(
                repo,
                revision=revision,
                allow_patterns=_FILES + _WEIGHTS,
                ignore_patterns=_OTHER_WEIGHTS,
                local_files_only=not fetch,
            )
        )
    except Exception as error:  # of many kinds, depending on the version and the transport
        if not fetch:
            raise ModelFileError(f"{reference} is not here; outrider models pull {reference} fetches it") from error
        raise DownloadError(
            f"{reference} cannot be had: {_first_line(error)}; check the name and the network, and HF_TOKEN, "
            "HF_ENDPOINT and HF_HUB_OFFLINE if they are set"
        ) from error
    if not (directory / "config.json").exists():
        raise DownloadError(f"{reference} has no config.json; if it holds GGUF files, name one: {reference}/FILE.gguf")
    return directory


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
