"""Inverse frequencies against transformers' own."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from outrider.errors import ModelFileError
from outrider.models import rope
from outrider.models.fields import Fields

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def fields(**values: object) -> Fields:
    return Fields(values, Path("config.json"))


@pytest.mark.parametrize(
    "rules",
    [
        {"rope_type": "default", "rope_theta": 10000.0},
        {"rope_type": "default", "rope_theta": 1e6},
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
        {"rope_theta": 500000.0, **LLAMA3},
    ],
)
def test_frequencies_are_those_of_transformers(rules):
    config = LlamaConfig(hidden_size=512, num_attention_heads=4, max_position_embeddings=131072, rope_parameters=rules)
    wanted = LlamaRotaryEmbedding(config).inv_freq.tolist()
    assert rope.from_config_json(fields(rope_parameters=rules), 128) == pytest.approx(wanted, rel=1e-6)
    # The same, as files from before rope_parameters spell it.
    scaling = {key: value for key, value in rules.items() if key != "rope_theta"}
    old = fields(rope_theta=rules["rope_theta"], rope_scaling=None if len(scaling) == 1 else scaling)
    assert rope.from_config_json(old, 128) == pytest.approx(wanted, rel=1e-6)


def test_the_old_name_of_the_type_is_understood():
    old = fields(rope_scaling={"type": "linear", "factor": 2.0})
    assert rope.from_config_json(old, 4) == (0.5, 0.005)


def test_nothing_said_means_the_default():
    assert rope.from_config_json(fields(), 4) == (1.0, 0.01)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"rope_type": "yarn", "factor": 4.0}, "rope scaling 'yarn' is not supported"),
        ({"rope_type": "dynamic", "factor": 4.0}, "rope scaling 'dynamic' is not supported"),
        ({"rope_type": "longrope"}, "rope scaling 'longrope' is not supported"),
        ({"rope_type": 3}, "rope_type is 3; it must be a string"),
        ({"rope_type": "linear"}, "factor is missing"),
        ({"rope_type": "linear", "factor": 1e-300}, "factor is 1e-300"),
        ({"rope_type": "linear", "factor": True}, "factor is True"),
        ({**LLAMA3, "high_freq_factor": 1.0}, "high_freq_factor is 1.0"),
        ({**LLAMA3, "low_freq_factor": float("nan")}, "low_freq_factor is nan"),
        ({**LLAMA3, "original_max_position_embeddings": 0}, "original_max_position_embeddings is 0"),
        ([1], r"rope_scaling is \[1\]; it must be an object"),
    ],
)
def test_bad_rules_are_named(rules, said):
    with pytest.raises(ModelFileError, match=said):
        rope.from_config_json(fields(rope_scaling=rules), 8)


@pytest.mark.parametrize("theta", [0.0, -1.0, 5e-324, 1e300, float("inf"), float("nan"), "10000"])
def test_bad_bases_are_named(theta):
    with pytest.raises(ModelFileError, match="rope_theta is "):
        rope.from_config_json(fields(rope_theta=theta), 8)
