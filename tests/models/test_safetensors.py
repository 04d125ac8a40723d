"""Model directories as transformers writes them, and as nobody should."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import MistralConfig, MistralForCausalLM

from outrider.errors import ModelFileError
from outrider.models.mapping import map_file
from outrider.models.open import open_model
from outrider.models.safetensors_file import read_tensors

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return tiny.write_directory(tiny.build_model("llama"), tmp_path_factory.mktemp("llama"))


@pytest.fixture
def copy(llama, tmp_path):
    return Path(shutil.copytree(llama, tmp_path / "model"))


def edit(directory: Path, name: str = "config.json", **changes: object) -> Path:
    path = directory / name
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in values.items() if value != "REMOVE"}))
    return directory


def raw(header: object, body: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_every_tensor_is_what_was_written(tmp_path, architecture, dtype):
    reference = tiny.build_model(architecture)
    model = open_model(tiny.write_directory(reference, tmp_path, dtype=DTYPES[dtype]))
    found = {(tensor.role, tensor.layer): tensor for tensor in model.tensors}
    for name, parameter in reference.state_dict().items():
        gguf_name = tiny.gguf_name(name)
        role = {"token_embd.weight": "embedding", "output.weight": "output", "output_norm.weight": "output_norm"}.get(
            gguf_name
        )
        layer = None
        if role is None:
            _, number, part, kind = gguf_name.split(".")
            role, layer = part + ("_bias" if kind == "bias" else ""), int(number)
        tensor = found.pop((role, layer))
        assert tensor.type == dtype
        assert tensor.shape == tuple(parameter.shape)
        assert tensor.data.tobytes() == parameter.contiguous().view(torch.uint8).numpy().tobytes()
    assert not found


def test_both_formats_describe_the_same_model(llama, tmp_path):
    reference = tiny.build_model("llama")
    tiny.write_gguf(reference, tmp_path / "m.gguf")
    one, other = open_model(llama), open_model(tmp_path / "m.gguf")
    for field in ("architecture", "vocab_size", "context_length", "hidden_size", "intermediate_size", "num_layers"):
        assert getattr(one.config, field) == getattr(other.config, field)
    assert one.config.rope_inv_freq == other.config.rope_inv_freq
    assert (one.config.rope_style, other.config.rope_style) == ("half", "interleaved")
    assert list(one.tokenizer.pieces) == list(other.tokenizer.pieces)
    assert one.tokenizer.eos_ids == other.tokenizer.eos_ids
    text = "def add(a, b):\n    return a + b  # naïve 日本 12345 🙂"
    assert one.tokenizer.encode(text) == other.tokenizer.encode(text)


def test_shards_are_read_through_their_index(tmp_path):
    reference = tiny.build_model("qwen2")
    tiny.write_directory(reference, tmp_path / "whole")
    reference.save_pretrained(tmp_path / "shards", max_shard_size="1MB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "whole" / name, tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 2
    whole, shards = open_model(tmp_path / "whole"), open_model(tmp_path / "shards")
    key = lambda tensor: (tensor.role, -1 if tensor.layer is None else tensor.layer)  # noqa: E731
    for one, other in zip(sorted(whole.tensors, key=key), sorted(shards.tensors, key=key), strict=True):
        assert key(one) == key(other)
        assert np.array_equal(one.data, other.data)


def test_a_tied_model_has_no_output_matrix(tmp_path):
    model = open_model(tiny.write_directory(tiny.build_model("llama", tie_word_embeddings=True), tmp_path))
    assert "output" not in {tensor.role for tensor in model.tensors}


def test_mistral_is_llama_and_its_window_bounds_the_context(tmp_path):
    sizes = {"vocab_size": 384, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    config = MistralConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, sliding_window=100)
    model = open_model(tiny.write_directory(MistralForCausalLM(config), tmp_path))
    assert (model.config.architecture, model.config.context_length) == ("llama", 100)
    assert open_model(edit(tmp_path, sliding_window=None)).config.context_length == 131072
    assert open_model(edit(tmp_path, sliding_window="REMOVE")).config.context_length == 4096


def test_an_unused_sliding_window_bounds_nothing(tmp_path):
    directory = tiny.write_directory(tiny.build_model("qwen2"), tmp_path)
    edit(directory, sliding_window=8, use_sliding_window=False)
    assert open_model(directory).config.context_length == 256
    assert open_model(edit(directory, use_sliding_window=True)).config.context_length == 8


def test_the_name_is_the_repositorys_in_the_hubs_cache(llama, tmp_path):
    snapshot = tmp_path / "models--some--repo" / "snapshots" / "0123abc"
    shutil.copytree(llama, snapshot)
    assert open_model(snapshot).name == "some/repo"
    assert open_model(llama).name == llama.name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox' is not supported"),
        (
            {"model_type": "gemma3", "vision_config": {}},
            "model_type 'gemma3' is not supported, only gemma3_text, llama",
        ),
        ({"model_type": "gemma2"}, "model_type 'gemma2' is not supported"),
        ({"model_type": "qwen3_moe"}, "model_type 'qwen3_moe' is not supported"),
        ({"model_type": 3}, "model_type is 3; it must be a string"),
        ({"model_type": "REMOVE"}, "model_type is missing"),
        ({"quantization_config": {"quant_method": "awq"}}, r"quantization_config \('awq'\) is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 3}, r"model\.layers\.2\.input_layernorm\.weight is missing"),
        ({"num_hidden_layers": 2.0}, "num_hidden_layers is 2.0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, "4 query heads cannot share 3"),
        ({"head_dim": None, "num_attention_heads": 6, "num_key_value_heads": 6}, "256 is not a multiple of 6 heads"),
        ({"vocab_size": 10**12}, "vocab_size is 1000000000000"),
        ({"vocab_size": 385}, "shape"),
        ({"rms_norm_eps": float("nan")}, "NaN is not JSON"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        ({"rms_norm_eps": "REMOVE"}, "rms_norm_eps is missing"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling 'yarn' is not supported"),
        ({"eos_token_id": [1, 99999]}, r"eos_token_id is \[1, 99999\]; the vocabulary has ids 0 to 383"),
    ],
)
def test_a_bad_configuration_is_named_in_one_line(copy, changes, said):
    with pytest.raises(ModelFileError, match=said) as caught:
        open_model(edit(copy, **changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("architecture", "changes", "said"),
    [
        ("qwen3", {"attention_bias": True}, "attention_bias True is not supported, only False"),
        ("qwen3", {"attention_bias": 0}, "attention_bias 0 is not supported"),
        ("qwen3", {"head_dim": 30}, "shape"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0 is not supported"),
        ("gemma3", {"final_logit_softcapping": 30}, "final_logit_softcapping 30 is not supported"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention True is not supported"),
        ("gemma3", {"hidden_activation": "silu"}, "hidden_activation 'silu' is not supported, only gelu_pytorch_tanh"),
        ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ("gemma3", {"sliding_window": 0}, "sliding_window is 0"),
        ("gemma3", {"sliding_window": 10**30}, "sliding_window is 10000"),
        ("gemma3", {"layer_types": ["full_attention"]}, "layer_types is .'full_attention'.; it must hold 7 of"),
        ("gemma3", {"layer_types": [["full_attention"]] * 7}, "layer_types is "),
        ("gemma3", {"layer_types": "REMOVE", "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        ("gemma3", {"rope_parameters": "REMOVE", "rope_local_base_freq": 0}, "rope_local_base_freq is 0"),
        ("gemma3", {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope scaling 'yarn'"),
        ("gemma3", {"rope_parameters": {"full_attention": {}, "sliding_attention": 3}}, "sliding_attention is 3"),
    ],
)
def test_variants_of_an_architecture_are_named(tmp_path, architecture, changes, said):
    directory = tiny.write_directory(tiny.build_model(architecture), tmp_path)
    with pytest.raises(ModelFileError, match=said) as caught:
        open_model(edit(directory, **changes))
    assert "\n" not in str(caught.value)


def test_what_a_configuration_of_gemma3_leaves_out_is_as_in_transformers(tmp_path):
    reference = tiny.build_model("gemma3", head_dim=256, num_key_value_heads=4, sliding_window=4096)
    directory = tiny.write_directory(reference, tmp_path)
    whole = open_model(directory).config
    for key in ("head_dim", "num_key_value_heads", "sliding_window", "rms_norm_eps", "tie_word_embeddings"):
        edit(directory, **{key: "REMOVE"})
    assert open_model(edit(directory, layer_types="REMOVE", rope_parameters="REMOVE")).config == whole
    assert whole.layer_windows == (4096,) * 5 + (0, 4096)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not valid JSON"),
        ("[1]", "holds a list"),
        ("{", "is not valid JSON"),
        ('{"a": 1, "a": 2}', "'a' occurs twice"),
        ("[" * 100_000, "is not valid JSON"),
        (b"\xff", "cannot be read"),
    ],
    ids=["nothing", "a list", "half an object", "a key twice", "nested without end", "no UTF-8"],
)
def test_a_configuration_that_is_no_json_object_is_refused(copy, text, said):
    (copy / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelFileError, match=said):
        open_model(copy)


def test_missing_files_are_named(copy):
    for name, said in {
        "tokenizer.json": "tokenizer.json is missing",
        "model.safetensors": "has no .safetensors file",
        "config.json": "config.json is missing",
    }.items():
        (copy / name).unlink()
        with pytest.raises(ModelFileError, match=said):
            open_model(copy)
        if name == "model.safetensors":
            (copy / "pytorch_model.bin").write_bytes(b"\x80\x04K\x01.")
            with pytest.raises(ModelFileError, match=r"'pytorch_model.bin', a pickle, .*save_pretrained"):
                open_model(copy)


def test_a_missing_output_matrix_is_not_taken_for_a_tied_one(tmp_path):
    directory = tiny.write_directory(tiny.build_model("llama", tie_word_embeddings=True), tmp_path)
    with pytest.raises(ModelFileError, match=r"lm_head\.weight is missing"):
        open_model(edit(directory, tie_word_embeddings=False))


def test_the_index_cannot_lead_elsewhere_or_lie(copy):
    index = copy / "model.safetensors.index.json"
    names = list(read_tensors(map_file(copy / "model.safetensors"), copy))
    for weight_map, said in (
        ({"a": "../model.safetensors"}, "names the file '../model.safetensors'"),
        ({"a": "pytorch_model.bin"}, "names the file 'pytorch_model.bin'"),
        ({"a": "gone.safetensors"}, "gone.safetensors cannot be read"),
        (dict.fromkeys([*names, "zzz"], "model.safetensors"), "'zzz' is not both listed and there"),
        (dict.fromkeys(names[1:], "model.safetensors"), "is not both listed and there"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ModelFileError, match=said):
            open_model(copy)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(names, "model.safetensors")}))
    open_model(copy)


def test_several_files_without_an_index_are_refused(copy):
    (copy / "model.safetensors").rename(copy / "a.safetensors")
    open_model(copy)
    shutil.copy(copy / "a.safetensors", copy / "b.safetensors")
    with pytest.raises(ModelFileError, match=r"2 \.safetensors files and no"):
        open_model(copy)


ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
BODY = bytes(64)


LIES = [
    (b"\x01", "a header of"),
    (raw({}, length=2**63), "a header of 9223372036854775808 bytes"),
    (raw({}, length=0), "a header of 0 bytes"),
    (raw({}, length=3), "a header of 3 bytes in a file of 10"),
    (raw(b"\xff\xff"), "not UTF-8 at byte 8"),
    (raw(b"[1]"), "holds a list"),
    (raw(b'{"t":1,"t":1}'), "'t' occurs twice"),
    (raw({"t": 1}), "is described by 1"),
    (raw({"t": {**ENTRY, "dtype": "I64"}}, BODY), "has type 'I64'"),
    (raw({"t": {**ENTRY, "dtype": "F8_E4M3"}}, BODY), "has type 'F8_E4M3'"),
    (raw({"t": {**ENTRY, "dtype": ["F32"]}}, BODY), r"has type \['F32'\]"),
    (raw({"t": {**ENTRY, "shape": [-2, -2]}}, BODY), r"has shape \[-2, -2\]"),
    (raw({"t": {**ENTRY, "shape": [2, 2.0]}}, BODY), r"has shape \[2, 2.0\]"),
    (raw({"t": {**ENTRY, "shape": [0, 2]}}, BODY), r"has shape \[0, 2\]"),
    (raw({"t": {**ENTRY, "shape": "22"}}, BODY), "has shape '22'"),
    (raw({"t": {**ENTRY, "shape": [1] * 9}}, BODY), "has shape"),
    (raw({"t": {**ENTRY, "shape": [2**62, 2**62]}}, BODY), "has 16 bytes, its type and shape need"),
    (raw({"t": {**ENTRY, "shape": [3, 2]}}, BODY), "has 16 bytes, its type and shape need 24"),
    (raw({"t": {**ENTRY, "data_offsets": [16, 0]}}, BODY), r"lies at \[16, 0\]"),
    (raw({"t": {**ENTRY, "data_offsets": [-16, 0]}}, BODY), r"lies at \[-16, 0\]"),
    (raw({"t": {**ENTRY, "data_offsets": [56, 72]}}, BODY), r"lies at \[56, 72\] of the 64 bytes"),
    (raw({"t": {**ENTRY, "data_offsets": [2**70, 2**70 + 16]}}, BODY), "lies at"),
    (raw({"t": {**ENTRY, "data_offsets": [0]}}, BODY), r"lies at \[0\]"),
    (raw({"a": ENTRY, "b": {**ENTRY, "data_offsets": [12, 28]}}, BODY), "'a' and 'b' overlap"),
    (raw({"a\n\x1b[0m": 1}, BODY), r"tensor 'a\\n\\x1b\[0m' is described"),
]


@pytest.mark.parametrize(("data", "said"), LIES, ids=[said for _, said in LIES])
def test_a_header_that_lies_is_named_in_one_line(data, said):
    with pytest.raises(ModelFileError, match=said) as caught:
        read_tensors(np.frombuffer(data, np.uint8), Path("x.safetensors"))
    assert "\n" not in str(caught.value)


def test_random_damage_to_a_header_never_does_more_than_raise():
    header = {"__metadata__": {"format": "pt"}, "a": ENTRY, "b": {**ENTRY, "dtype": "BF16", "data_offsets": [16, 24]}}
    whole = np.frombuffer(raw(header, BODY), np.uint8)
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(10_000):
        damaged = whole.copy()
        at = rng.integers(0, whole.size - len(BODY), rng.integers(1, 4))
        damaged[at] = rng.integers(0, 256, at.size)
        if rng.random() < 0.3:
            damaged = damaged[: rng.integers(0, damaged.size)]
        try:
            tensors = read_tensors(damaged, Path("x.safetensors"))
        except ModelFileError:
            refused += 1
        else:
            assert all(tensor.data.size <= len(BODY) for tensor in tensors.values())
    assert refused > 5_000
