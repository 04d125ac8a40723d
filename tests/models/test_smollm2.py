"""The one real model of the tests: SmolLM2-135M, from the catalog."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from texts import HARD_TEXTS
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers.utils.chat_template_utils import render_jinja_template

from outrider import _core
from outrider.models.catalog import CATALOG
from outrider.models.chat import encode_chat
from outrider.models.download import cache_directory, pull
from outrider.models.mapping import map_file
from outrider.models.open import open_model


@pytest.fixture(scope="module")
def path() -> Path:
    return pull(CATALOG["smollm2-135m"], cache_directory(os.environ))


@pytest.fixture(scope="module")
def model(path):
    return open_model(path)


def test_the_configuration_is_smollm2s(model):
    config = model.config
    assert (config.architecture, config.rope_style) == ("llama", "interleaved")
    assert (config.hidden_size, config.intermediate_size, config.num_layers) == (576, 1536, 30)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.context_length) == (49152, 8192)
    assert config.rope_inv_freq[31] == pytest.approx(1e5 ** (-62 / 64), rel=1e-12)
    assert model.quantisation == {"Q4_1": 66355200, "Q8_0": 30081024, "F32": 140544}
    assert len(model.tensors) == 272
    assert "output" not in {tensor.role for tensor in model.tensors}


def test_ids_are_llama_cpps(model):
    golden = json.loads((Path(__file__).parent / "golden" / "llama_cpp.json").read_text())["smollm2-135m"]["expected"]
    for text, expected in zip(HARD_TEXTS, golden, strict=True):
        assert model.tokenizer.encode(text, add_special=False) == expected["literal"], text
        assert model.tokenizer.encode(text, parse_special=True) == expected["parsed"], text


def test_ids_are_those_of_the_models_own_tokenizer(path, model):
    metadata, _ = _core.parse_gguf(map_file(path))
    pieces = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    own = Tokenizer(models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges))
    # As in the model's tokenizer.json: single digits, then GPT-2's words.
    own.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    own.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in pieces[:17]])
    for text in HARD_TEXTS:
        assert model.tokenizer.encode(text, parse_special=True) == own.encode(text).ids, text


def test_its_end_tokens_are_known(model):
    assert {model.tokenizer.pieces[token_id] for token_id in model.tokenizer.eos_ids} == {"<|im_end|>", "<|endoftext|>"}
    assert model.tokenizer.bos_id == 1
    assert model.tokenizer.encode("a") == model.tokenizer.encode("a", add_special=False)


def test_its_chat_template_gives_what_transformers_gives(model):
    messages = [
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "é"},
        {"role": "user", "content": ""},
    ]
    (wanted,), _ = render_jinja_template(
        [messages], chat_template=model.chat_template.source, add_generation_prompt=True
    )
    assert model.chat_template.render(messages) == wanted
    prompt = encode_chat(model.tokenizer, model.chat_template, messages)
    assert prompt == model.tokenizer.encode(wanted, parse_special=True)
    assert prompt[0] == 1
