"""What sets one model apart from another, beside its sizes, and where that is read from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outrider.models import rope
from outrider.models.architectures.sizes import Sizes, Spelling
from outrider.models.fields import Fields


@dataclass(frozen=True, slots=True)
class Source:
    """A file's description of its model.

    Attributes:
        fields: The file's metadata or configuration.
        spelling: How it names them.
        prefix: What comes before each name in GGUF, such as ``"llama."``; in ``config.json`` nothing.
        rope_factors: The values of GGUF's ``rope_freqs.weight``, if there are any.
    """

    fields: Fields
    spelling: Spelling
    prefix: str = ""
    rope_factors: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Traits:
    """The fields of :class:`~outrider.models.config.ModelConfig` that tell architectures apart."""

    query_scale: float
    rope_inv_freq: tuple[float, ...]
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embedding_scale: float = 1.0
    layer_windows: tuple[int, ...] = ()
    windowed_rope_inv_freq: tuple[float, ...] = ()


def plain(source: Source, sizes: Sizes) -> Traits:
    """Return the traits of a Llama: the others are told from it with ``dataclasses.replace``."""
    if source.spelling == "safetensors":
        source.fields.only("hidden_act", ["silu"])
    return Traits(
        query_scale=1 / math.sqrt(sizes.head_dim),
        rope_inv_freq=(
            rope.from_gguf(source.fields, source.prefix, sizes.head_dim, source.rope_factors)
            if source.spelling == "gguf"
            else rope.from_config_json(source.fields, sizes.head_dim)
        ),
    )
