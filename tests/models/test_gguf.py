"""GGUF files through the front door."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
import torch
from gguf import GGMLQuantizationType
from hostile import F32, STRING, U32, entry, header, text
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from outrider.errors import ModelFileError
from outrider.models.architectures.gemma3 import GEMMA3
from outrider.models.architectures.sizes import Sizes
from outrider.models.architectures.traits import Source
from outrider.models.fields import Fields
from outrider.models.open import open_model

ROLES = {
    "token_embd.weight": "embedding",
    "output.weight": "output",
    "output_norm.weight": "output_norm",
    "post_attention_norm.weight": "attn_post_norm",
    "post_ffw_norm.weight": "ffn_post_norm",
    **{f"attn_{letter}.bias": f"attn_{letter}_bias" for letter in "qkv"},
}


def role_of(name: str) -> tuple[str, int | None]:
    if not name.startswith("blk."):
        return ROLES[name], None
    _, layer, part = name.split(".", 2)
    return ROLES.get(part, part.removesuffix(".weight")), int(layer)


def rewrite(
    source: Path, target: Path, changes: dict[str, object], tensors: dict[str, np.ndarray] | None = None
) -> Path:
    """Copy a GGUF file with some metadata changed (None removes) and some float tensors added."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "", use_temp_file=False)
    writer.kv_data[0].clear()
    fields = {key: field for key, field in reader.fields.items() if not key.startswith("GGUF.")}
    for key, field in fields.items():
        if key in changes:
            continue
        kinds = field.types
        writer.add_key_value(key, field.contents(), kinds[0], kinds[1] if len(kinds) > 1 else None)
    for key, value in changes.items():
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
    for name, values in (tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "llama.gguf"
    tiny.write_gguf(tiny.build_model("llama"), path)
    return path


@pytest.mark.parametrize("weight_type", tiny.WEIGHT_TYPES)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma3"])
def test_every_tensor_is_what_was_written(tmp_path, architecture, weight_type):
    written = tiny.write_gguf(tiny.build_model(architecture), tmp_path / "m.gguf", weight_type)
    model = open_model(tmp_path / "m.gguf")
    found = {(tensor.role, tensor.layer): tensor for tensor in model.tensors}
    assert found.keys() == {role_of(name) for name in written}
    for name, data in written.items():
        tensor = found[role_of(name)]
        assert np.array_equal(tensor.data, data)
        assert tensor.type == (weight_type if len(tensor.shape) == 2 else "F32")


def test_tensors_come_in_the_order_of_the_file(llama):
    addresses = [tensor.data.ctypes.data for tensor in open_model(llama).tensors]
    assert addresses == sorted(addresses)


@pytest.mark.parametrize(("architecture", "style"), [("llama", "interleaved"), ("qwen2", "half")])
def test_the_configuration_is_the_models(tmp_path, architecture, style):
    reference = tiny.build_model(architecture, rms_norm_eps=1e-5, rope_theta=5e4)
    tiny.write_gguf(reference, tmp_path / "m.gguf")
    model = open_model(tmp_path / "m.gguf")
    config = model.config
    assert (config.architecture, config.rope_style) == (architecture, style)
    assert (config.vocab_size, config.context_length) == (384, 256)
    assert (config.hidden_size, config.intermediate_size, config.num_layers) == (256, 512, 2)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (4, 2, 64)
    assert config.norm_eps == np.float32(1e-5)
    theta = reference.config.rope_parameters["rope_theta"]
    assert config.rope_inv_freq == pytest.approx([theta ** (-2 * i / 64) for i in range(32)], rel=1e-12)
    assert model.name == f"tiny {architecture}"
    assert model.chat_template is not None
    assert model.file_bytes == (tmp_path / "m.gguf").stat().st_size


def test_a_tied_model_has_no_output_matrix(tmp_path):
    tiny.write_gguf(tiny.build_model("qwen2", tie_word_embeddings=True), tmp_path / "m.gguf")
    assert "output" not in {tensor.role for tensor in open_model(tmp_path / "m.gguf").tensors}


def test_undoing_the_permutation_of_q_gives_the_models_own_rows(tmp_path):
    reference = tiny.build_model("llama")
    tiny.write_gguf(reference, tmp_path / "m.gguf")
    (tensor,) = (t for t in open_model(tmp_path / "m.gguf").tensors if (t.role, t.layer) == ("attn_q", 1))
    rows = tensor.data.view(np.float32).reshape(4, 32, 2, 256)  # heads, pairs, halves
    own = reference.state_dict()["model.layers.1.self_attn.q_proj.weight"].numpy()
    assert np.array_equal(rows.swapaxes(1, 2).reshape(256, 256), own)


def test_linear_rope_scaling_divides_every_frequency(llama, tmp_path):
    changes = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    scaled = open_model(rewrite(llama, tmp_path / "m.gguf", changes)).config.rope_inv_freq
    assert scaled == tuple(f / 4 for f in open_model(llama).config.rope_inv_freq)
    legacy = open_model(rewrite(llama, tmp_path / "n.gguf", {"llama.rope.scale_linear": 4.0})).config.rope_inv_freq
    assert legacy == scaled


def test_llama3_rope_factors_divide_their_frequencies(llama, tmp_path):
    rules = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = LlamaConfig(hidden_size=256, num_attention_heads=4, max_position_embeddings=512, rope_parameters=rules)
    wanted = LlamaRotaryEmbedding(config).inv_freq.numpy()
    plain = 10000.0 ** (-np.arange(32) / 32)
    factors = {"rope_freqs.weight": (plain / wanted).astype(np.float32)}
    found = open_model(rewrite(llama, tmp_path / "m.gguf", {}, factors)).config.rope_inv_freq
    assert found == pytest.approx(wanted, rel=1e-6)


def test_a_sliding_window_bounds_the_context(llama, tmp_path):
    changes = {"llama.attention.sliding_window": 100}
    assert open_model(rewrite(llama, tmp_path / "m.gguf", changes)).config.context_length == 100


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"general.architecture": "gemma2"}, "general.architecture 'gemma2' is not supported, only gemma3, llama"),
        ({"general.architecture": "qwen3moe"}, "general.architecture 'qwen3moe' is not supported"),
        ({"general.architecture": "mamba"}, "general.architecture 'mamba' is not supported"),
        ({"general.architecture": None}, "general.architecture is missing"),
        ({"general.type": "adapter"}, "holds a 'adapter'"),
        ({"split.count": 3}, "one of 3 parts"),
        ({"llama.block_count": None}, "llama.block_count is missing"),
        ({"llama.block_count": 0}, "llama.block_count is 0; it must be an integer from 1 to 1024"),
        ({"llama.block_count": 3}, r"tensor blk\.2\.attn_norm\.weight is missing"),
        ({"llama.block_count": 1}, r"tensor 'blk\.1\.attn_k\.weight' \(9 such\) is not part of"),
        ({"llama.attention.head_count": 0}, "head_count is 0"),
        ({"llama.attention.head_count": 3}, "3 query heads cannot share 2"),
        ({"llama.attention.head_count_kv": 8}, "4 query heads cannot share 8"),
        ({"llama.attention.head_count": 2}, r"shape \[128, 256\], the configuration says \[256, 256\]"),
        ({"llama.attention.key_length": 33}, "head size 33 is odd"),
        ({"llama.attention.value_length": 32}, "values of size 32"),
        ({"llama.rope.dimension_count": 32}, "rotated part of size 32"),
        ({"llama.embedding_length": 1 << 30}, "embedding_length is 1073741824"),
        ({"llama.embedding_length": -1}, "embedding_length is -1"),
        ({"llama.embedding_length": "256"}, "embedding_length is '256'"),
        ({"llama.feed_forward_length": 256}, "shape"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon is nan"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "epsilon is 0.0"),
        ({"llama.attention.layer_norm_rms_epsilon": float("inf")}, "epsilon is inf"),
        ({"llama.rope.freq_base": float("nan")}, "freq_base is nan"),
        ({"llama.rope.freq_base": -1.0}, "freq_base is -1.0"),
        ({"llama.rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
        ({"llama.rope.scaling.type": "longrope"}, "rope scaling 'longrope' is not supported"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, "scaling.factor is 0.0"),
        ({"tokenizer.ggml.model": "bert"}, "tokenizer model 'bert' is not supported"),
        ({"tokenizer.ggml.pre": "viking"}, "pre-tokenizer 'viking' is not supported"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens holds None strings"),
        ({"tokenizer.ggml.tokens": ["a"] * 384}, "'a' occurs twice"),
        ({"tokenizer.ggml.tokens": [f"t{i}" for i in range(385)]}, "must hold 385 integers"),
        ({"tokenizer.ggml.token_type": [1, 2]}, "must hold 384 integers"),
        ({"tokenizer.ggml.token_type": [9] * 384}, "from 9 to 9"),
        ({"tokenizer.ggml.merges": None}, "merges is None"),
        ({"tokenizer.ggml.merges": ["x y"]}, r"merge \('x', 'y'\) does not join"),
        ({"tokenizer.ggml.merges": ["xy"]}, "merge .*'xy'.* does not join"),
        ({"tokenizer.ggml.eos_token_id": 384}, "eos_token_id is 384; it must be an integer from 0 to 383"),
        ({"tokenizer.ggml.add_bos_token": True}, "add_bos_token is true, but the file does not say which"),
        ({"tokenizer.chat_template": "{% if %}"}, "chat template is not valid"),
    ],
)
def test_bad_metadata_is_named_in_one_line(llama, tmp_path, changes, said):
    path = rewrite(llama, tmp_path / "bad.gguf", changes)
    with pytest.raises(ModelFileError, match=said) as caught:
        open_model(path)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def gemma3(tmp_path_factory):
    path = tmp_path_factory.mktemp("gguf") / "gemma3.gguf"
    tiny.write_gguf(tiny.build_model("gemma3"), path)
    return path


def test_gemma3_has_a_window_in_five_layers_of_six(gemma3, tmp_path):
    config = open_model(gemma3).config
    assert config.layer_windows == (24,) * 5 + (0, 24)
    assert config.norm_offset == 0.0
    assert config.query_scale == pytest.approx(128**-0.5, rel=1e-15)
    assert (config.rope_inv_freq[1], config.windowed_rope_inv_freq[1]) == (1e6 ** (-1 / 64), 1e4 ** (-1 / 64))
    changes = {"gemma3.attention.sliding_window_pattern": 2, "gemma3.rope.freq_base_swa": 100.0}
    config = open_model(rewrite(gemma3, tmp_path / "m.gguf", changes)).config
    assert config.layer_windows == (24, 0) * 3 + (24,)
    assert config.windowed_rope_inv_freq[1] == 100 ** (-1 / 64)


def test_only_the_largest_gemma3_divides_queries_by_another_number_than_the_heads_size():
    """https://huggingface.co/google/gemma-3-27b-it/blob/main/config.json has query_pre_attn_scalar 168."""
    metadata = Fields({"gemma3.attention.sliding_window": 1024}, Path("m.gguf"))
    sizes = Sizes(131072, 5376, 21504, 62, 32, 16, 128, 1e-6)
    assert GEMMA3.traits(Source(metadata, "gguf", "gemma3."), sizes).query_scale == pytest.approx(168**-0.5, rel=1e-15)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gemma3.attention.sliding_window": None}, "gemma3.attention.sliding_window is missing"),
        ({"gemma3.attention.sliding_window": 0}, "gemma3.attention.sliding_window is 0"),
        ({"gemma3.attention.sliding_window": 1 << 25}, "gemma3.attention.sliding_window is 33554432"),
        ({"gemma3.attention.sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ({"gemma3.attention.sliding_window_pattern": [True] * 7}, "sliding_window_pattern is "),
        ({"gemma3.final_logit_softcapping": 30.0}, "gemma3.final_logit_softcapping 30.0 is not supported"),
        ({"gemma3.attn_logit_softcapping": 50.0}, "gemma3.attn_logit_softcapping 50.0 is not supported"),
        ({"gemma3.rope.freq_base_swa": float("nan")}, "freq_base_swa is nan"),
        ({"gemma3.rope.scaling.type": "yarn"}, "rope scaling 'yarn' is not supported"),
        ({"gemma3.attention.key_length": 64, "gemma3.attention.value_length": 64}, "shape"),
        ({"gemma3.attention.value_length": 64}, "values of size 64"),
    ],
)
def test_variants_of_gemma3_are_named(gemma3, tmp_path, changes, said):
    with pytest.raises(ModelFileError, match=said) as caught:
        open_model(rewrite(gemma3, tmp_path / "bad.gguf", changes))
    assert "\n" not in str(caught.value)


def test_gemma3_with_eyes_is_refused(gemma3, tmp_path):
    eyes = {"v.blk.0.attn_q.weight": np.zeros((32, 32), np.float32)}
    with pytest.raises(ModelFileError, match=r"'v.blk.0.attn_q.weight' .* is not part of the gemma3 architecture"):
        open_model(rewrite(gemma3, tmp_path / "bad.gguf", {}, eyes))


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        (
            "blk.0.ffn_gate_inp.weight",
            np.zeros((4, 256), np.float32),
            "ffn_gate_inp.weight' .* is not part of the llama",
        ),
        ("blk.0.attn_q.bias", np.zeros(256, np.float32), "attn_q.bias' .* is not part of the llama"),
        ("rope_freqs.weight", np.ones(7, np.float32), "holds 7 values; it must hold 32"),
        ("rope_freqs.weight", np.full(32, np.nan, np.float32), "each above"),
        ("rope_freqs.weight", np.ones(32, np.float16), "is F16"),
    ],
)
def test_bad_tensors_are_named(llama, tmp_path, name, values, said):
    with pytest.raises(ModelFileError, match=said):
        open_model(rewrite(llama, tmp_path / "bad.gguf", {}, {name: values}))


def test_more_tokens_than_rows_are_refused(tmp_path):
    metadata = tiny.tokenizer_metadata(tiny.build_tokenizer(384))
    tiny.write_gguf(tiny.build_model("llama", vocab_size=300), tmp_path / "m.gguf", metadata=metadata)
    with pytest.raises(ModelFileError, match="the tokenizer has 384 tokens, the embedding only 300 rows"):
        open_model(tmp_path / "m.gguf")


def test_a_missing_embedding_is_named(tmp_path):
    sizes = ("context_length", "embedding_length", "feed_forward_length", "block_count", "attention.head_count")
    entries = [entry("general.architecture", STRING, text("llama"))]
    entries += [entry(f"llama.{size}", U32, struct.pack("<I", 4)) for size in sizes]
    entries += [entry("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5))]
    entries += [entry("llama.attention.key_length", U32, struct.pack("<I", 4))]
    entries += [entry("llama.attention.value_length", U32, struct.pack("<I", 4))]
    (tmp_path / "m.gguf").write_bytes(header(entries))
    with pytest.raises(ModelFileError, match=r"tensor token_embd\.weight is missing"):
        open_model(tmp_path / "m.gguf")


def test_what_is_no_model_at_all_is_named(tmp_path):
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "text.gguf").write_text("not a model, but long enough to have a header\n" * 4)
    (tmp_path / "weights.bin").write_bytes(b"\x80\x04")
    (tmp_path / "model.safetensors").write_bytes(bytes(16))
    for name, said in {
        "missing.gguf": "cannot be read: No such file",
        "empty.gguf": "is empty",
        "text.gguf": "begins with 'not ', not with 'GGUF'",
        "weights.bin": "is a pickle",
        "model.safetensors": "give its directory",
    }.items():
        with pytest.raises(ModelFileError, match=said):
            open_model(tmp_path / name)


def test_special_files_are_refused_without_reading_them():
    with pytest.raises(ModelFileError, match="not a regular file"):
        open_model(Path("/dev/zero"))


def test_truncation_in_every_region_is_refused(llama, tmp_path):
    whole = llama.read_bytes()
    rng = np.random.default_rng(1)
    for length in sorted({0, 1, 8, 23, 24, 25, 100, len(whole) - 1, *rng.integers(0, len(whole), 40).tolist()}):
        path = tmp_path / "cut.gguf"
        path.write_bytes(whole[:length])
        with pytest.raises(ModelFileError):
            open_model(path)


def test_random_damage_to_a_real_file_never_does_more_than_raise(llama, tmp_path):
    whole = np.frombuffer(llama.read_bytes(), np.uint8)
    header_bytes = gguf.GGUFReader(llama).data_offset
    rng = np.random.default_rng(2)
    path = tmp_path / "damaged.gguf"
    messages: list[str] = []
    for _ in range(300):
        damaged = whole.copy()
        at = rng.integers(0, header_bytes, rng.integers(1, 6))
        damaged[at] = rng.integers(0, 256, at.size)
        damaged.tofile(path)
        try:
            assert len(open_model(path).tensors) == 21
        except ModelFileError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert not any("\n" in message for message in messages)


def test_the_fingerprint_sees_one_changed_weight_and_length(llama, tmp_path):
    data = bytearray(llama.read_bytes())
    assert open_model(llama).fingerprint == open_model(llama).fingerprint
    data[-1] ^= 1
    (tmp_path / "changed.gguf").write_bytes(data)
    (tmp_path / "longer.gguf").write_bytes(llama.read_bytes() + b"\0")
    prints = {open_model(path).fingerprint for path in (llama, tmp_path / "changed.gguf", tmp_path / "longer.gguf")}
    assert len(prints) == 3


def test_the_description_is_ready_for_json(llama):
    model = open_model(llama)
    described = model.describe()
    assert described["quantisation"] == {"F32": sum(tensor.data.size for tensor in model.tensors)}
    assert described["parameters"] == sum(int(np.prod(tensor.shape)) for tensor in model.tensors)
    assert described["architecture"] == "llama"
    assert described["eos_ids"] == [381, 383]
    assert described["has_chat_template"] is True


def test_dequantised_values_are_near_the_source(tmp_path):
    """A check of the writer: the simple formats must hold the weights that they were given."""
    reference = tiny.build_model("llama")
    tiny.write_gguf(reference, tmp_path / "m.gguf", "Q8_0")
    (tensor,) = (t for t in open_model(tmp_path / "m.gguf").tensors if t.role == "embedding")
    values = gguf.dequantize(tensor.data.reshape(384, -1), GGMLQuantizationType.Q8_0)
    wanted = reference.state_dict()["model.embed_tokens.weight"].to(torch.float32).numpy()
    assert np.abs(values - wanted).max() < 2e-3
