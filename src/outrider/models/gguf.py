"""Opens GGUF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider import _core
from outrider.errors import ModelFileError
from outrider.models.architectures import of_gguf
from outrider.models.architectures.base import Architecture, RawTensor, assign_roles
from outrider.models.architectures.sizes import read_sizes
from outrider.models.architectures.traits import Source
from outrider.models.chat_template import ChatTemplate
from outrider.models.config import ModelConfig
from outrider.models.fields import Fields, shown
from outrider.models.files import ModelFiles, fingerprint, printable
from outrider.models.gguf_tokenizer import build_tokenizer
from outrider.models.mapping import map_file
from outrider.models.tokenizer import MAX_TOKENS, Tokenizer

_EMBEDDING = "token_embd.weight"
_ROPE_FACTORS = "rope_freqs.weight"


def open_gguf(path: Path) -> ModelFiles:
    """Open a GGUF file.

    Raises:
        ModelFileError: The file is missing, damaged or of a kind that is not supported.
    """
    data = map_file(path)
    try:
        values, headers = _core.parse_gguf(data)
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from error
    metadata = Fields(values, path)
    tensors = {
        name: RawTensor(kind, shape, data[offset : offset + size]) for name, kind, shape, offset, size in headers
    }
    _check_is_whole_model(metadata)
    architecture = of_gguf(metadata)
    config = _read_config(metadata, architecture, tensors)
    tokenizer = build_tokenizer(metadata)
    return ModelFiles(
        name=printable(metadata.text("general.name", "") or path.stem),
        path=path,
        config=config,
        tensors=assign_roles(architecture, "gguf", tensors, config, path),
        tokenizer=tokenizer,
        chat_template=_chat_template(metadata, tokenizer),
        file_bytes=data.size,
        fingerprint=fingerprint([data]),
    )


def _check_is_whole_model(metadata: Fields) -> None:
    kind = metadata.text("general.type", "model")
    if kind != "model":
        raise metadata.error(f"the file holds a {shown(kind)}, not a model; give the model itself")
    parts = metadata.integer("split.count", 0, 65535, 1)
    if parts > 1:
        raise metadata.error(f"the file is one of {parts} parts; join them with llama-gguf-split --merge")


def _read_config(metadata: Fields, architecture: Architecture, tensors: dict[str, RawTensor]) -> ModelConfig:
    prefix = architecture.name + "."
    window = 0 if architecture.windowed else metadata.integer(prefix + "attention.sliding_window", 0, 1 << 31, 0)
    sizes = read_sizes(metadata, "gguf", prefix, window=window or None)
    value_length = metadata.integer(prefix + "attention.value_length", 1, 1 << 20, sizes.head_dim)
    rope_dim = metadata.integer(prefix + "rope.dimension_count", 1, 1 << 20, sizes.head_dim)
    for name, length in (("values", value_length), ("rotated part", rope_dim)):
        if length != sizes.head_dim:
            raise metadata.error(f"heads of size {sizes.head_dim} with {name} of size {length} are not supported")
    embedding = tensors.get(_EMBEDDING)
    if embedding is None or not 0 < embedding.shape[0] <= MAX_TOKENS:
        found = "missing" if embedding is None else f"of shape {list(embedding.shape)}"
        raise metadata.error(f"tensor {_EMBEDDING} is {found}; it must have 1 to {MAX_TOKENS} rows")
    factors = tensors.get(_ROPE_FACTORS)
    if factors is not None and (factors.type != "F32" or len(factors.shape) != 1):
        raise metadata.error(f"tensor {_ROPE_FACTORS} is {factors.type} of shape {list(factors.shape)}, not an F32 row")
    source = Source(metadata, "gguf", prefix, None if factors is None else _floats(factors.data))
    return architecture.describe(source, sizes, embedding.shape[0])


def _floats(data: NDArray[np.uint8]) -> list[float]:
    values: list[float] = np.frombuffer(data.tobytes(), "<f4").tolist()
    return values


def _chat_template(metadata: Fields, tokenizer: Tokenizer) -> ChatTemplate | None:
    if not metadata.has("tokenizer.chat_template"):
        return None
    eos_id = metadata.values.get("tokenizer.ggml.eos_token_id")
    return ChatTemplate(
        metadata.text("tokenizer.chat_template"),
        bos_token="" if tokenizer.bos_id is None else tokenizer.pieces[tokenizer.bos_id],
        eos_token=tokenizer.pieces[eos_id] if isinstance(eos_id, int) else "",
    )
