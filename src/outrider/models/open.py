"""Opens whatever a path holds."""

from __future__ import annotations

from pathlib import Path

from outrider.errors import ModelFileError
from outrider.models.files import ModelFiles
from outrider.models.gguf import open_gguf
from outrider.models.safetensors import open_directory

_PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})


def open_model(path: Path) -> ModelFiles:
    """Open a GGUF file or a directory with ``config.json`` and safetensors; no weight is read yet.

    Raises:
        ModelFileError: It is missing, damaged or of a kind that is not supported.
    """
    try:
        is_directory = path.is_dir()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}; check the path and its permissions") from error
    if is_directory:
        return open_directory(path)
    if path.suffix in _PICKLE_SUFFIXES:
        raise ModelFileError(f"{path} is a pickle, which can run code when read; give a .gguf file or safetensors")
    if path.suffix == ".safetensors":
        raise ModelFileError(f"{path} is only a part of a model; give its directory, the one with config.json")
    return open_gguf(path)
