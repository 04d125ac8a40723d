"""The architectures that can be loaded. A new one is a file here and a line below."""

from __future__ import annotations

from pathlib import Path

from outrider.errors import ModelFileError
from outrider.models.architectures.base import Architecture
from outrider.models.architectures.llama import LLAMA
from outrider.models.architectures.qwen2 import QWEN2
from outrider.models.fields import shown

ARCHITECTURES = (LLAMA, QWEN2)


def by_gguf_name(name: str, path: Path) -> Architecture:
    """Return the architecture that a GGUF file names."""
    return _find({architecture.name: architecture for architecture in ARCHITECTURES}, name, path)


def by_model_type(model_type: str, path: Path) -> Architecture:
    """Return the architecture that a ``config.json`` names."""
    known = {kind: architecture for architecture in ARCHITECTURES for kind in architecture.model_types}
    return _find(known, model_type, path)


def _find(known: dict[str, Architecture], name: str, path: Path) -> Architecture:
    if name not in known:
        raise ModelFileError(
            f"{path}: architecture {shown(name)} is not supported; use a model of {', '.join(sorted(known))}"
        )
    return known[name]
