"""Qwen3: Qwen2 with each head of q and k normalised instead of biases, and heads of 128 whatever the hidden size.

Qwen Team, "Qwen3 Technical Report", https://arxiv.org/abs/2505.09388, section 2.
"""

from dataclasses import replace

from outrider.models.architectures.base import DECODER_RULES, HEAD_NORM_RULES, Architecture
from outrider.models.architectures.sizes import Sizes
from outrider.models.architectures.traits import Source, Traits, plain


def _traits(source: Source, sizes: Sizes) -> Traits:
    source.fields.only("attention_bias", [False])
    return replace(plain(source, sizes), qk_norm=True)


QWEN3 = Architecture(
    "qwen3",
    ("qwen3",),
    "half",
    DECODER_RULES + HEAD_NORM_RULES,
    _traits,
    defaults={"head_dim": 128, "rms_norm_eps": 1e-6, "use_sliding_window": False},
)
