"""Gemma 3, text only: four norms a layer, GELU, and five layers with a window to every one that sees everything.

Gemma Team, "Gemma 3 Technical Report", https://arxiv.org/abs/2503.19786, section 2. What the report leaves open is as
in transformers (modeling_gemma3.py), in float32: embeddings are multiplied by the square root of the hidden size, which
transformers rounds to the weights' type in narrower ones.
"""

import math

from outrider.models import rope
from outrider.models.architectures.base import DECODER_RULES, HEAD_NORM_RULES, Architecture, layer_rule
from outrider.models.architectures.sizes import Sizes
from outrider.models.architectures.traits import Source, Traits
from outrider.models.fields import Fields, shown

# In safetensors "post_attention_layernorm" is what it says, unlike in a Llama, where it comes before feed-forward.
_RULES = (
    *(rule for rule in DECODER_RULES if rule.role != "ffn_norm"),
    *HEAD_NORM_RULES,
    layer_rule("attn_post_norm", "post_attention_norm.weight", "post_attention_layernorm.weight", "hidden"),
    layer_rule("ffn_norm", "ffn_norm.weight", "pre_feedforward_layernorm.weight", "hidden"),
    layer_rule("ffn_post_norm", "post_ffw_norm.weight", "post_feedforward_layernorm.weight", "hidden"),
)
_WINDOW_LIMIT = 1 << 24
_THETA, _WINDOWED_THETA = 1e6, 1e4
_PERIOD = 6  # every so many layers one has no window
# Converters to GGUF leave out what queries are divided by. Of all sizes only that with so many layers divides by
# another number than the head's size: by the hidden size's share of each head (llama.cpp goes by the same).
_LAYERS_OF_27B = 62


def _traits(source: Source, sizes: Sizes) -> Traits:
    fields = source.fields
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        fields.only(source.prefix + key, [0, 0.0])
    if source.spelling == "gguf":
        divisor = float(sizes.hidden_size / sizes.num_heads if sizes.num_layers == _LAYERS_OF_27B else sizes.head_dim)
        windows = _windows_of_gguf(fields, source.prefix, sizes)
        everywhere = rope.from_gguf(fields, source.prefix, sizes.head_dim, source.rope_factors, theta=_THETA)
        theta = fields.number(source.prefix + "rope.freq_base_swa", *rope.THETA, _WINDOWED_THETA)
        windowed = tuple(rope.inverse_frequencies(sizes.head_dim, theta))
    else:
        fields.only("attention_bias", [False])
        fields.only("use_bidirectional_attention", [False])
        fields.only("hidden_activation", ["gelu_pytorch_tanh"])
        divisor = fields.number("query_pre_attn_scalar", 0.0, 1e6)
        windows = _windows_of_config(fields, sizes)
        everywhere, windowed = _frequencies_of_config(fields, sizes)
    return Traits(
        query_scale=1 / math.sqrt(divisor),
        rope_inv_freq=everywhere,
        windowed_rope_inv_freq=windowed,
        layer_windows=windows,
        qk_norm=True,
        post_norms=True,
        norm_offset=0.0 if source.spelling == "gguf" else 1.0,  # converters to GGUF have added it
        activation="gelu_tanh",
        embedding_scale=math.sqrt(sizes.hidden_size),
    )


def _windows_of_gguf(fields: Fields, prefix: str, sizes: Sizes) -> tuple[int, ...]:
    window = fields.integer(prefix + "attention.sliding_window", 1, _WINDOW_LIMIT)
    period = fields.integer(prefix + "attention.sliding_window_pattern", 1, 1024, _PERIOD)
    return _periodic(window, period, sizes.num_layers)


def _windows_of_config(fields: Fields, sizes: Sizes) -> tuple[int, ...]:
    window = fields.integer("sliding_window", 1, _WINDOW_LIMIT)
    if not fields.has("layer_types"):
        return _periodic(window, fields.integer("sliding_window_pattern", 1, 1024, _PERIOD), sizes.num_layers)
    windows = {"sliding_attention": window, "full_attention": 0}
    kinds = fields.values["layer_types"]
    if not isinstance(kinds, list) or len(kinds) != sizes.num_layers or not all(str(k) in windows for k in kinds):
        raise fields.error(
            f"layer_types is {shown(kinds)}; it must hold {sizes.num_layers} of {', '.join(windows)}: fetch it again"
        )
    return tuple(windows[kind] for kind in kinds)


def _periodic(window: int, period: int, num_layers: int) -> tuple[int, ...]:
    return tuple(window if (layer + 1) % period else 0 for layer in range(num_layers))


def _frequencies_of_config(fields: Fields, sizes: Sizes) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the frequencies of layers without and with a window: each kind has rules, or one has, as once was."""
    rules = fields.section("rope_parameters")
    if not rules.has("full_attention"):
        theta = fields.number("rope_local_base_freq", *rope.THETA, _WINDOWED_THETA)
        windowed = tuple(rope.inverse_frequencies(sizes.head_dim, theta))
        return rope.from_config_json(fields, sizes.head_dim, theta=_THETA), windowed
    return (
        rope.from_rules(rules.section("full_attention"), sizes.head_dim, theta=_THETA),
        rope.from_rules(rules.section("sliding_attention"), sizes.head_dim, theta=_WINDOWED_THETA),
    )


GEMMA3 = Architecture(
    "gemma3",
    ("gemma3_text",),
    "half",
    _RULES,
    _traits,
    windowed=True,
    defaults={
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
    },
)
