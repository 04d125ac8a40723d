"""The architectures that can be loaded. A new one is a file here and a line below."""

from __future__ import annotations

from outrider.models.architectures.base import Architecture
from outrider.models.architectures.gemma3 import GEMMA3
from outrider.models.architectures.llama import LLAMA
from outrider.models.architectures.qwen2 import QWEN2
from outrider.models.architectures.qwen3 import QWEN3
from outrider.models.fields import Fields

ARCHITECTURES = (LLAMA, QWEN2, QWEN3, GEMMA3)


def of_gguf(metadata: Fields) -> Architecture:
    """Return the architecture that a GGUF file names.

    Raises:
        ModelFileError: It names none, or one that is not supported.
    """
    return _named(metadata, "general.architecture", {known.name: known for known in ARCHITECTURES})


def of_config_json(config: Fields) -> Architecture:
    """Return the architecture that a ``config.json`` names.

    Raises:
        ModelFileError: It names none, or one that is not supported.
    """
    return _named(config, "model_type", {kind: known for known in ARCHITECTURES for kind in known.model_types})


def _named(fields: Fields, key: str, known: dict[str, Architecture]) -> Architecture:
    fields.text(key)
    return known[fields.only(key, sorted(known))]
