"""What the core needs to know of a model, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder described by data; one description serves every file format.

    Attributes:
        architecture: ``"llama"`` or ``"qwen2"``.
        rope_style: ``"half"`` rotates element ``i`` with ``i + rope_dim / 2`` (safetensors, and GGUF of qwen2);
            ``"interleaved"`` rotates ``2 i`` with ``2 i + 1`` (GGUF of llama, whose q and k rows are permuted).
        rope_inv_freq: ``[rope_dim / 2]`` inverse frequencies, every scaling rule of the file already applied.
        layer_windows: For each layer how many positions a token sees, its own the last of them; 0 is all. Empty is 0
            for every layer.
    """

    architecture: str
    vocab_size: int
    context_length: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope_style: Literal["half", "interleaved"]
    rope_inv_freq: tuple[float, ...]
    layer_windows: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorSource:
    """One tensor of a model file, not yet read.

    Attributes:
        role: One of ``embedding output output_norm`` (layer ``None``) or ``attn_norm attn_q attn_k attn_v attn_q_bias
            attn_k_bias attn_v_bias attn_output ffn_norm ffn_gate ffn_up ffn_down``. No ``output`` means that the
            embedding serves as the output matrix.
        layer: Index of the layer, or ``None``.
        type: ``F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K``.
        shape: ``(out, in)`` for matrices, ``(n,)`` for vectors; checked against the config.
        data: The bytes, a view of the memory map; its length is checked against type and shape.
    """

    role: str
    layer: int | None
    type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]
