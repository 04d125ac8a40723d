"""A model file or directory, opened: everything that is known of it before any weight is read."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.errors import ModelFileError
from outrider.models.chat_template import ChatTemplate
from outrider.models.config import ModelConfig, TensorSource
from outrider.models.tokenizer import Tokenizer

_SAMPLES = 64
_SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on disk.

    Attributes:
        name: For people; printable, from the file's own metadata where it has any.
        path: The GGUF file or the directory.
        config: What the core needs.
        tensors: In the order in which they lie on disk; their data are views of memory maps.
        tokenizer: Text to ids and back.
        chat_template: ``None`` when the model has none: messages can then only be sent as plain text.
        file_bytes: Size of the weights' files.
        fingerprint: Tells models apart; see :func:`fingerprint`.
    """

    name: str
    path: Path
    config: ModelConfig
    tensors: tuple[TensorSource, ...]
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    file_bytes: int
    fingerprint: str

    def __post_init__(self) -> None:
        if self.tokenizer.vocab_size > self.config.vocab_size:
            raise ModelFileError(
                f"{self.path}: the tokenizer has {self.tokenizer.vocab_size} tokens, the embedding only "
                f"{self.config.vocab_size} rows; fetch the model again or convert it anew"
            )

    @property
    def quantisation(self) -> dict[str, int]:
        """Bytes of weights by tensor type, the most first."""
        sizes: Counter[str] = Counter()
        for tensor in self.tensors:
            sizes[tensor.type] += tensor.data.size
        return dict(sizes.most_common())

    def describe(self) -> dict[str, Any]:
        """Return what there is to say of the model, ready for JSON."""
        config = self.config
        return {
            "name": self.name,
            "path": str(self.path),
            "architecture": config.architecture,
            "file_bytes": self.file_bytes,
            "fingerprint": self.fingerprint,
            "quantisation": self.quantisation,
            "parameters": sum(math.prod(tensor.shape) for tensor in self.tensors),
            "context_length": config.context_length,
            "hidden_size": config.hidden_size,
            "num_layers": config.num_layers,
            "num_heads": config.num_heads,
            "num_kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "vocab_size": config.vocab_size,
            "num_tokens": self.tokenizer.num_tokens,
            "bos_id": self.tokenizer.bos_id,
            "eos_ids": sorted(self.tokenizer.eos_ids),
            "has_chat_template": self.chat_template is not None,
        }


def printable(text: str) -> str:
    """Return untrusted text as one printable line of at most 80 characters."""
    return "".join(char if char.isprintable() else "?" for char in text[:80])


def fingerprint(files: Iterable[NDArray[np.uint8]]) -> str:
    """Return a short name for the contents of files.

    It hashes each size and 64 samples from the first byte to the last, not every byte: it tells models apart in
    milliseconds; it does not prove that a file is undamaged.
    """
    digest = hashlib.sha256()
    for data in files:
        digest.update(data.size.to_bytes(8, "little"))
        last = max(0, data.size - _SAMPLE_BYTES)
        for sample in range(_SAMPLES):
            start = last * sample // (_SAMPLES - 1)
            digest.update(data[start : start + _SAMPLE_BYTES].tobytes())
    return digest.hexdigest()[:16]
