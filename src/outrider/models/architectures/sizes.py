"""The numbers that describe a decoder, as GGUF and ``config.json`` spell them, with the bounds they must keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outrider.models.fields import Fields

Spelling = Literal["gguf", "safetensors"]


@dataclass(frozen=True, slots=True)
class _Size:
    name: str  # a field of ModelConfig
    gguf: str  # behind the architecture's prefix
    safetensors: str
    limit: int


_SIZES = (
    _Size("context_length", "context_length", "max_position_embeddings", 1 << 24),
    _Size("hidden_size", "embedding_length", "hidden_size", 1 << 17),
    _Size("intermediate_size", "feed_forward_length", "intermediate_size", 1 << 20),
    _Size("num_layers", "block_count", "num_hidden_layers", 1024),
    _Size("num_heads", "attention.head_count", "num_attention_heads", 1024),
    _Size("num_kv_heads", "attention.head_count_kv", "num_key_value_heads", 1024),
    _Size("head_dim", "attention.key_length", "head_dim", 1024),
)
_EPSILON = {"gguf": "attention.layer_norm_rms_epsilon", "safetensors": "rms_norm_eps"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The part of :class:`~outrider.models.config.ModelConfig` that every format spells out."""

    context_length: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float


def read_sizes(fields: Fields, spelling: Spelling, prefix: str = "", *, window: int | None = None) -> Sizes:
    """Return the sizes that a file states; heads that it does not state follow from the others.

    Args:
        fields: The file's metadata or configuration.
        spelling: How it names them.
        prefix: What comes before each name.
        window: Where the context ends, if it ends early.

    Raises:
        ModelFileError: One is missing, out of range or at odds with another.
    """

    def key(size: _Size) -> str:
        return prefix + (size.gguf if spelling == "gguf" else size.safetensors)

    read = {size.name: fields.integer(key(size), 1, size.limit) for size in _SIZES[:5]}
    kv_heads, head_dim = _SIZES[5], _SIZES[6]
    heads, hidden = read["num_heads"], read["hidden_size"]
    read["num_kv_heads"] = fields.integer(key(kv_heads), 1, kv_heads.limit, heads)
    if heads % read["num_kv_heads"]:
        raise fields.error(f"{heads} query heads cannot share {read['num_kv_heads']} key-value heads evenly")
    if not fields.has(key(head_dim)) and hidden % heads:
        raise fields.error(f"hidden size {hidden} is not a multiple of {heads} heads, and no head size is given")
    read["head_dim"] = fields.integer(key(head_dim), 2, head_dim.limit, max(2, hidden // heads))
    if read["head_dim"] % 2:
        raise fields.error(f"head size {read['head_dim']} is odd; rotary embeddings need an even one")
    if window is not None:
        read["context_length"] = min(read["context_length"], window)
    return Sizes(**read, norm_eps=fields.number(prefix + _EPSILON[spelling], 0.0, 1.0))
