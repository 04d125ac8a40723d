"""Models of the Hugging Face hub, by ``hf:owner/repo[@revision][/file.gguf]``.

huggingface_hub does the work, so its cache, tokens, mirrors and offline mode apply as everywhere else.
"""

from __future__ import annotations

import re
from pathlib import Path

from outrider.errors import DownloadError, UsageError

_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w.-]+))?(?:/(?P<file>[^@]+))?")
# All that is read of a repository: data, never code or pickles.
_FILES = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
_WEIGHTS = ["*.safetensors", "model.safetensors.index.json"]
_OTHER_WEIGHTS = ["*/*", "consolidated*"]  # the same weights again in another layout, or those of another model


def fetch(reference: str) -> Path:
    """Return the local path of a hub model, downloading what is not in the hub's cache.

    Args:
        reference: A repository with safetensors, or one GGUF file of a repository.

    Raises:
        UsageError: The reference is malformed or names a file that is not GGUF.
        DownloadError: The hub does not have it, or does not give it.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise UsageError(
            f"{reference!r} is not a hub model; write hf:owner/repo, hf:owner/repo@revision or .../file.gguf"
        )
    repo, revision, file = match["repo"], match["revision"], match["file"]
    if file is not None and (not file.endswith(".gguf") or ".." in file.split("/")):
        raise UsageError(f"{reference!r} names {file!r}; name a .gguf file, or the repository for its safetensors")
    import huggingface_hub  # noqa: PLC0415  (slow to import, and most runs need no hub)

    try:
        if file is not None:
            return Path(huggingface_hub.hf_hub_download(repo, file, revision=revision))
        directory = Path(
            huggingface_hub.snapshot_download(
                repo, revision=revision, allow_patterns=_FILES + _WEIGHTS, ignore_patterns=_OTHER_WEIGHTS
            )
        )
    except Exception as error:  # of many kinds, depending on the version and the transport
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
