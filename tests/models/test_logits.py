"""Files through the native core against transformers: every role, permutation and rope rule in its place."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny

from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend
from outrider.models.open import open_model

TOKENS = np.random.default_rng(3).integers(0, 384, 100).tolist()
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}


def logits(path) -> np.ndarray:
    model = open_model(path)
    backend = NativeBackend.load(model.config, model.tensors, max_length=len(TOKENS), threads=1)
    return backend.forward([Rows(backend.open_sequence(), TOKENS, len(TOKENS))]).copy()


def assert_near(found: np.ndarray, reference) -> None:
    """As in the native core's own tests."""
    wanted = tiny.reference_logits(reference, TOKENS)
    error = np.abs(found - wanted) / wanted.std()
    assert np.median(error) < 6e-4
    assert error.max() < 2e-2


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_both_formats_compute_what_transformers_computes(tmp_path, architecture, tied):
    reference = tiny.build_model(architecture, tie_word_embeddings=tied)
    tiny.write_gguf(reference, tmp_path / "m.gguf")
    assert_near(logits(tmp_path / "m.gguf"), reference)
    assert_near(logits(tiny.write_directory(reference, tmp_path / "m")), reference)


def test_gemma3_scales_the_positions_of_layers_without_a_window_alone(tmp_path):
    rules = {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
    }
    reference = tiny.build_model("gemma3", rope_parameters=rules, query_pre_attn_scalar=20)
    directory = tiny.write_directory(reference, tmp_path)
    assert_near(logits(directory), reference)
    config = json.loads((directory / "config.json").read_text())
    config |= {"rope_theta": 1e5, "rope_local_base_freq": 5e3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    del config["rope_parameters"], config["layer_types"]  # as files were before these
    (directory / "config.json").write_text(json.dumps(config))
    assert_near(logits(directory), reference)


@pytest.mark.parametrize("rules", [LLAMA3, LINEAR], ids=["llama3", "linear"])
def test_rope_scaling_computes_what_transformers_computes(tmp_path, rules):
    reference = tiny.build_model("llama", rope_parameters=rules)
    assert_near(logits(tiny.write_directory(reference, tmp_path)), reference)
