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
        architecture: For people; the core goes by the other fields alone.
        norm_eps: Of every norm. All are RMS norms: ``x / sqrt(mean(x^2) + norm_eps) * (norm_offset + weight)``.
        query_scale: What queries are multiplied by, once rotated.
        rope_style: ``"half"`` rotates element ``i`` with ``i + rope_dim / 2`` (safetensors, and most of GGUF);
            ``"interleaved"`` rotates ``2 i`` with ``2 i + 1`` (GGUF of llama, whose q and k rows are permuted).
        rope_inv_freq: ``[rope_dim / 2]`` inverse frequencies, every scaling rule of the file already applied.
        qkv_bias: Whether q, k and v have biases.
        qk_norm: Whether each head of q and k is normalised before it is rotated.
        post_norms: Whether what attention and the feed-forward network put out is normalised before it is added.
        norm_offset: See ``norm_eps``; a file's own norms may lack the 1 that they are meant to be around.
        activation: Of the feed-forward network's gate.
        embedding_scale: What embeddings are multiplied by.
        layer_windows: ``[num_layers]``, how many positions a query of each layer sees, its own included, with 0 for
            all of them; empty when no layer has a window.
        windowed_rope_inv_freq: As ``rope_inv_freq``, of the layers with a window; empty when they differ in nothing.
        cache_window: Not 0 for a draft only: how many last positions its layers see at most, beside the first 64; its
            cache forgets the others.
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
    query_scale: float
    rope_style: Literal["half", "interleaved"]
    rope_inv_freq: tuple[float, ...]
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_offset: float = 0.0
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embedding_scale: float = 1.0
    layer_windows: tuple[int, ...] = ()
    windowed_rope_inv_freq: tuple[float, ...] = ()
    cache_window: int = 0


@dataclass(frozen=True, slots=True)
class TensorSource:
    """One tensor of a model file, not yet read.

    Attributes:
        role: One of ``embedding output output_norm`` (layer ``None``) or ``attn_norm attn_q attn_k attn_v attn_q_bias
            attn_k_bias attn_v_bias attn_q_norm attn_k_norm attn_output attn_post_norm ffn_norm ffn_gate ffn_up
            ffn_down ffn_post_norm``. No ``output`` means that the embedding serves as the output matrix.
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
