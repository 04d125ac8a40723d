"""The native backend against transformers in float32, on tiny random models.

What differs by design is that queries, keys, values and their weights are rounded to 16-bit integers: some 5e-4 of a
logit, where a cache in half precision would be worth 1e-3. The standard deviation of the logits is about 1.5.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import reference_logits
from tiny_models import Shape, build_reference, load, tensors_of

from outrider import _core
from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend

SHAPES = {
    "llama, grouped queries": Shape(),
    "llama as in GGUF": Shape(interleaved=True),
    "llama as in GGUF, odd sizes, one key head": Shape(
        interleaved=True, hidden_size=84, num_heads=7, num_kv_heads=1, head_dim=12, vocab_size=101
    ),
    "llama, every head its own keys, biases": Shape(
        num_kv_heads=4, hidden_size=72, head_dim=18, intermediate_size=88, attention_bias=True
    ),
    "llama, tied, wide heads": Shape(tied=True, head_dim=80, num_layers=3),
    "qwen2": Shape(architecture="qwen2"),
    "qwen2, tied, seven queries a key": Shape(
        architecture="qwen2", tied=True, hidden_size=56, num_heads=7, num_kv_heads=1, head_dim=8
    ),
    "qwen3, heads wider than the model": Shape(architecture="qwen3", hidden_size=48, num_heads=4, head_dim=32),
    "qwen3, heads of an odd size, tied": Shape(
        architecture="qwen3", tied=True, num_heads=4, num_kv_heads=1, head_dim=18
    ),
    "gemma3 without windows": Shape(architecture="gemma3", tied=True, num_layers=3, head_dim=24),
    "gemma3": Shape(architecture="gemma3", tied=True, num_layers=4, head_dim=24, window=50),
    "gemma3, a window of one position": Shape(architecture="gemma3", num_layers=3, window=1),
}
TOKENS = np.random.default_rng(5).integers(0, 77, 150).tolist()


def native_logits(backend: NativeBackend) -> np.ndarray:
    sequence = backend.open_sequence()
    return backend.forward([Rows(sequence, TOKENS, len(TOKENS))]).copy()


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("isa", _core.available_isas())
def test_float32_weights(name: str, isa: str) -> None:
    shape = SHAPES[name]
    reference = reference_logits(build_reference(shape), TOKENS)
    error = np.abs(native_logits(load(shape, isa=isa, threads=2)) - reference)
    assert np.median(error) < 6e-4
    assert error.max() < 1e-2


@pytest.mark.parametrize(("weight_type", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
@pytest.mark.parametrize("name", ["llama as in GGUF", "qwen2"])
def test_half_width_weights_are_exact(name: str, weight_type: str, dtype: torch.dtype) -> None:
    """The reference gets the same rounded matrices, so nothing but the order of sums is left."""
    shape = SHAPES[name]
    model = build_reference(shape)
    for weight in model.parameters():
        if weight.ndim == 2:
            weight.data = weight.data.to(dtype).float()
    error = np.abs(native_logits(load(shape, weight_type=weight_type)) - reference_logits(model, TOKENS))
    assert np.median(error) < 6e-4
    assert error.max() < 1e-2


@pytest.mark.parametrize(("weights", "limit"), [("bfloat16", 0.04), ("int8", 0.12)])
@pytest.mark.parametrize("name", ["llama as in GGUF", "qwen2"])
def test_requantised_weights(name: str, weights: str, limit: float) -> None:
    """Root mean square error against the logits' standard deviation; narrow layers average little of it away."""
    shape = SHAPES[name]
    reference = reference_logits(build_reference(shape), TOKENS)
    error = native_logits(load(shape, weights=weights)) - reference
    assert np.sqrt(np.mean(error**2)) < limit * reference.std()


def test_requantising_saves_memory() -> None:
    sizes = [load(Shape(), weights=weights).weight_bytes for weights in ("file", "bfloat16", "int8")]
    assert sizes[0] > sizes[1] > sizes[2]


def test_both_rope_styles_are_one_model() -> None:
    """The file's order of q and k rows changes where a pair lies, and with it the order of a sum, but not the model."""
    half, interleaved = (native_logits(load(Shape(interleaved=style))) for style in (False, True))
    np.testing.assert_array_equal(half, interleaved)


def test_partial_rotation() -> None:
    """Frequencies of zero rotate nothing, just like elements beyond the rotated ones."""
    shape = Shape()
    tensors = tensors_of(build_reference(shape), shape)
    whole = replace(shape.config, rope_inv_freq=(*shape.config.rope_inv_freq[:3], 0.0, 0.0, 0.0, 0.0, 0.0))
    partial = replace(shape.config, rope_inv_freq=shape.config.rope_inv_freq[:3])
    order = [0, 1, 2, 8, 9, 10, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15]  # a head's rotated elements first
    moved = [
        replace(t, data=t.data.reshape(-1, 16, t.data.size // t.shape[0])[:, order].reshape(-1))
        if t.role in ("attn_q", "attn_k")
        else t
        for t in tensors
    ]
    logits = [
        native_logits(NativeBackend.load(config, given, max_length=1024, threads=1))
        for config, given in ((whole, tensors), (partial, moved))
    ]
    np.testing.assert_allclose(logits[0], logits[1], atol=2e-2)
