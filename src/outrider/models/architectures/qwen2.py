"""Qwen2 and Qwen2.5: Llama with biases on q, k and v."""

from outrider.models.architectures.base import DECODER_RULES, Architecture, layer_rule

_BIASES = (
    layer_rule("attn_q_bias", "attn_q.bias", "self_attn.q_proj.bias", "q"),
    layer_rule("attn_k_bias", "attn_k.bias", "self_attn.k_proj.bias", "kv"),
    layer_rule("attn_v_bias", "attn_v.bias", "self_attn.v_proj.bias", "kv"),
)

QWEN2 = Architecture("qwen2", ("qwen2",), "half", DECODER_RULES + _BIASES)
