"""An architecture described by data: which tensors a model has, how the file formats spell them, their shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outrider.errors import ModelFileError
from outrider.models.architectures.sizes import Sizes, Spelling
from outrider.models.architectures.traits import Source, Traits
from outrider.models.config import ModelConfig, TensorSource
from outrider.models.fields import shown


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as a file holds it; ``data`` is a view of the memory map, checked against type and shape."""

    type: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TensorRule:
    """One tensor of the model, or one per layer where the names have a ``{layer}``.

    Attributes:
        role: See :class:`~outrider.models.config.TensorSource`.
        gguf: Its name in GGUF.
        safetensors: Its name in safetensors.
        shape: Sizes by name: ``vocab hidden intermediate q kv head``.
        optional: Whether a model may do without it.
    """

    role: str
    gguf: str
    safetensors: str
    shape: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """What sets one family apart.

    Attributes:
        name: As in GGUF's ``general.architecture`` and in :class:`~outrider.models.config.ModelConfig`.
        model_types: The values of ``model_type`` in a ``config.json`` that mean this architecture.
        gguf_rope_style: How q and k are laid out in GGUF; in safetensors it is always ``"half"``.
        rules: Every tensor of the model.
        traits: Reads what else sets the model apart from others of its size.
        windowed: Whether ``traits`` say which layers have a window. Where they do not, the context ends at the window,
            within which every layer computes plain attention.
        defaults: What transformers takes the fields to be that a ``config.json`` does not have.
    """

    name: str
    model_types: tuple[str, ...]
    gguf_rope_style: Literal["half", "interleaved"]
    rules: tuple[TensorRule, ...]
    traits: Callable[[Source, Sizes], Traits]
    windowed: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def describe(self, source: Source, sizes: Sizes, vocab_size: int) -> ModelConfig:
        """Return what the core needs to know of a model.

        Raises:
            ModelFileError: The file describes a variant that is not supported.
        """
        return ModelConfig(
            architecture=self.name,
            vocab_size=vocab_size,
            rope_style=self.gguf_rope_style if source.spelling == "gguf" else "half",
            **asdict(sizes),
            **asdict(self.traits(source, sizes)),
        )


def layer_rule(role: str, gguf: str, safetensors: str, *shape: str) -> TensorRule:
    """Return the rule for a tensor that every layer has; the names are those within the layer."""
    return TensorRule(role, "blk.{layer}." + gguf, "model.layers.{layer}." + safetensors, shape)


# The tensors of a pre-norm decoder with grouped-query attention and a gated feed-forward network.
DECODER_RULES = (
    TensorRule("embedding", "token_embd.weight", "model.embed_tokens.weight", ("vocab", "hidden")),
    TensorRule("output", "output.weight", "lm_head.weight", ("vocab", "hidden"), optional=True),
    TensorRule("output_norm", "output_norm.weight", "model.norm.weight", ("hidden",)),
    layer_rule("attn_norm", "attn_norm.weight", "input_layernorm.weight", "hidden"),
    layer_rule("attn_q", "attn_q.weight", "self_attn.q_proj.weight", "q", "hidden"),
    layer_rule("attn_k", "attn_k.weight", "self_attn.k_proj.weight", "kv", "hidden"),
    layer_rule("attn_v", "attn_v.weight", "self_attn.v_proj.weight", "kv", "hidden"),
    layer_rule("attn_output", "attn_output.weight", "self_attn.o_proj.weight", "hidden", "q"),
    layer_rule("ffn_norm", "ffn_norm.weight", "post_attention_layernorm.weight", "hidden"),
    layer_rule("ffn_gate", "ffn_gate.weight", "mlp.gate_proj.weight", "intermediate", "hidden"),
    layer_rule("ffn_up", "ffn_up.weight", "mlp.up_proj.weight", "intermediate", "hidden"),
    layer_rule("ffn_down", "ffn_down.weight", "mlp.down_proj.weight", "hidden", "intermediate"),
)
HEAD_NORM_RULES = (
    layer_rule("attn_q_norm", "attn_q_norm.weight", "self_attn.q_norm.weight", "head"),
    layer_rule("attn_k_norm", "attn_k_norm.weight", "self_attn.k_norm.weight", "head"),
)

# Tensors that hold nothing which is not in the configuration too, or that are read by other means.
_NOT_WEIGHTS = re.compile(r"rope_freqs\.weight|model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def assign_roles(
    architecture: Architecture, spelling: Spelling, tensors: Mapping[str, RawTensor], config: ModelConfig, path: Path
) -> tuple[TensorSource, ...]:
    """Give every tensor of a file its role, in the order in which the data lies in the file.

    Raises:
        ModelFileError: A tensor is missing or has another shape than the configuration says, or there is one that the
            architecture does not know, which would change what the model computes.
    """
    sources: list[TensorSource] = []
    left = {name: tensor for name, tensor in tensors.items() if not _NOT_WEIGHTS.fullmatch(name)}
    for rule in architecture.rules:
        pattern: str = getattr(rule, spelling)
        for layer in range(config.num_layers) if "{layer}" in pattern else (None,):
            name = pattern.format(layer=layer)
            tensor = left.pop(name, None)
            if tensor is not None:
                _check_shape(name, tensor, rule, config, path)
                sources.append(TensorSource(rule.role, layer, tensor.type, tensor.shape, tensor.data))
            elif not rule.optional:
                raise ModelFileError(
                    f"{path}: tensor {name} is missing, which {architecture.name} with {config.num_layers} layers "
                    "must have; fetch the file again or convert the model anew"
                )
    if left:
        raise ModelFileError(
            f"{path}: tensor {shown(min(left))} ({len(left)} such) is not part of the {architecture.name} "
            f"architecture with {config.num_layers} layers as supported; use a plain variant of the model"
        )
    return tuple(sorted(sources, key=lambda source: source.data.ctypes.data))


def _check_shape(name: str, tensor: RawTensor, rule: TensorRule, config: ModelConfig, path: Path) -> None:
    sizes = {
        "vocab": config.vocab_size,
        "hidden": config.hidden_size,
        "intermediate": config.intermediate_size,
        "q": config.num_heads * config.head_dim,
        "kv": config.num_kv_heads * config.head_dim,
        "head": config.head_dim,
    }
    wanted = tuple(sizes[size] for size in rule.shape)
    if tensor.shape != wanted:
        raise ModelFileError(
            f"{path}: tensor {name} has shape {list(tensor.shape)}, the configuration says {list(wanted)}; "
            "fetch the file again or convert the model anew"
        )
