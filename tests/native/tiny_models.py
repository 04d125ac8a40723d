"""Tiny random decoders built by transformers, and the same weights as the native backend takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from gguf import GGMLQuantizationType
from tiny import quantised
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from outrider.backends.native import NativeBackend, WeightFormat
from outrider.models.config import ModelConfig, TensorSource

_QUERY_SCALAR = 24  # gemma3's query_pre_attn_scalar
_LAYER_ROLES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA_ROLES = {
    "post_attention_layernorm": "attn_post_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "ffn_post_norm",
}
_ROLES = {
    "model.embed_tokens.weight": "embedding",
    "model.norm.weight": "output_norm",
    "lm_head.weight": "output",
}


@dataclass(frozen=True)
class Shape:
    """What varies between the tiny models."""

    architecture: str = "llama"
    vocab_size: int = 77
    hidden_size: int = 64
    intermediate_size: int = 96
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    tied: bool = False
    attention_bias: bool = False  # qwen2 always has it
    interleaved: bool = False
    window: int = 0  # of every layer but each third; the reference has it for gemma3 alone
    seed: int = 0

    @property
    def config(self) -> ModelConfig:
        half = self.head_dim // 2
        gemma = self.architecture == "gemma3"
        return ModelConfig(
            architecture=self.architecture,
            vocab_size=self.vocab_size,
            context_length=1024,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            norm_eps=1e-5,
            query_scale=1 / math.sqrt(_QUERY_SCALAR if gemma else self.head_dim),
            qkv_bias=self.attention_bias or self.architecture == "qwen2",
            qk_norm=gemma or self.architecture == "qwen3",
            post_norms=gemma,
            norm_offset=1.0 if gemma else 0.0,
            activation="gelu_tanh" if gemma else "silu",
            embedding_scale=math.sqrt(self.hidden_size) if gemma else 1.0,
            layer_windows=tuple(
                self.window if (layer + 1) % 3 else 0 for layer in range(self.num_layers if self.window else 0)
            ),
            windowed_rope_inv_freq=tuple(100.0 ** (-i / half) for i in range(half if gemma else 0)),
            rope_style="interleaved" if self.interleaved else "half",
            rope_inv_freq=tuple(10000.0 ** (-i / half) for i in range(half)),
        )


def build_reference(shape: Shape) -> PreTrainedModel:
    """Return a model with random weights, large enough that attention is not uniform."""
    torch.manual_seed(shape.seed)
    common = {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    model = _build(shape, common)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 - shape.config.norm_offset + 0.2 * torch.randn_like(weight))
            elif name.endswith("bias"):
                weight.copy_(0.0 if "o_proj" in name else 0.5 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) * weight.shape[-1] ** -0.5 * 1.5)
    return model.eval()


def _build(shape: Shape, common: dict[str, object]) -> PreTrainedModel:
    if shape.architecture == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**common))
    if shape.architecture == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**common))
    if shape.architecture == "llama":
        return LlamaForCausalLM(LlamaConfig(**common, attention_bias=shape.attention_bias))
    rotations = {"full_attention": 10000.0, "sliding_attention": 100.0}
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            **common,
            query_pre_attn_scalar=_QUERY_SCALAR,
            sliding_window=shape.window or 1024,
            layer_types=[
                "sliding_attention" if shape.window and (i + 1) % 3 else "full_attention"
                for i in range(shape.num_layers)
            ],
            rope_parameters={kind: {"rope_type": "default", "rope_theta": t} for kind, t in rotations.items()},
        )
    )


def tensors_of(model: PreTrainedModel, shape: Shape, weight_type: str = "F32") -> list[TensorSource]:
    """Return the model's tensors; the embedding and the matrices are of ``weight_type``, vectors float32.

    The codes of K types are random. ``"Q4_K_M"`` mixes Q4_K and Q6_K as model files of that name do.
    """
    rng = np.random.default_rng(shape.seed)
    tensors = []
    for name, parameter in model.state_dict().items():
        role, layer = _role_of(name, shape)
        if role is None or (role == "output" and shape.tied):
            continue
        permuted = shape.interleaved and role.split("_bias")[0] in ("attn_q", "attn_k")
        weight = _interleave_rows(parameter, shape.head_dim) if permuted else parameter
        kind = weight_type if weight.ndim == 2 else "F32"
        if kind == "Q4_K_M":
            kind = "Q6_K" if role in ("attn_v", "ffn_down") else "Q4_K"
        data = (
            quantised(weight.contiguous().float().numpy(), GGMLQuantizationType[kind], rng).reshape(-1).view(np.uint8)
        )
        tensors.append(TensorSource(role=role, layer=layer, type=kind, shape=tuple(weight.shape), data=data))
    return tensors


def load(
    shape: Shape,
    *,
    weight_type: str = "F32",
    weights: WeightFormat = "file",
    threads: int | None = 1,
    isa: str | None = None,
    max_length: int = 1024,
) -> NativeBackend:
    """Build the tiny model and load it natively."""
    tensors = tensors_of(build_reference(shape), shape, weight_type)
    return NativeBackend.load(shape.config, tensors, max_length=max_length, threads=threads, isa=isa, weights=weights)


def _role_of(name: str, shape: Shape) -> tuple[str | None, int | None]:
    if name in _ROLES:
        return _ROLES[name], None
    _, _, layer, rest = name.split(".", 3)
    module, kind = rest.rsplit(".", 1)
    role = (_LAYER_ROLES | _GEMMA_ROLES if shape.architecture == "gemma3" else _LAYER_ROLES)[module]
    if kind == "bias":
        return (None, None) if role == "attn_output" else (role + "_bias", int(layer))
    return role, int(layer)


def _interleave_rows(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Move element ``i`` of a head's first half to ``2 i`` and of its second half to ``2 i + 1``, as GGUF has llama."""
    heads = weight.reshape(-1, 2, head_dim // 2, *weight.shape[1:])
    return heads.transpose(1, 2).reshape(weight.shape)
