"""Qwen2 and Qwen2.5: Llama with biases on q, k and v."""

from dataclasses import replace

from outrider.models.architectures.base import DECODER_RULES, Architecture, layer_rule
from outrider.models.architectures.sizes import Sizes
from outrider.models.architectures.traits import Source, Traits, plain

_BIASES = (
    layer_rule("attn_q_bias", "attn_q.bias", "self_attn.q_proj.bias", "q"),
    layer_rule("attn_k_bias", "attn_k.bias", "self_attn.k_proj.bias", "kv"),
    layer_rule("attn_v_bias", "attn_v.bias", "self_attn.v_proj.bias", "kv"),
)


def _traits(source: Source, sizes: Sizes) -> Traits:
    return replace(plain(source, sizes), qkv_bias=True)


QWEN2 = Architecture("qwen2", ("qwen2",), "half", DECODER_RULES + _BIASES, _traits)
