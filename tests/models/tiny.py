"""Tiny models with random weights, written as people find them on disk: a safetensors directory, or a GGUF file.

Both come from one transformers model, so that what is read back can be compared with it. Nothing here uses outrider.
"""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WEIGHT_TYPES = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CORPUS = (
    "The quick brown fox jumps over the lazy dog while seventeen other animals watch from behind the fence. " * 8,
    "A language model reads some words and says which word is likely to come next; another one checks it. " * 8,
    "def add(left, right):\n    return left + right\n\nfor index in range(10):\n    print(index, add(index, 1))\n" * 8,
    "Voilà un café naïve. Größe, Straße. 日本語のテキスト。Привет, мир! 🙂🙂 " * 8,
)
_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "lm_head": "output",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_GEMMA_NAMES = {
    **_GGUF_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig),
}
# Beside the sizes; the head of both is of another size than the hidden size's share.
_SPECIFIC: dict[str, dict[str, object]] = {
    "qwen3": {"head_dim": 128},
    "gemma3": {"head_dim": 128, "num_hidden_layers": 7, "sliding_window": 24, "query_pre_attn_scalar": 128},
}
# Bytes of a block of 256, and where in it the float16 scales lie.
_K_BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}


def build_tokenizer(vocab_size: int = 384) -> Tokenizer:
    """Return a byte-level BPE tokenizer as Qwen2's, trained on a few lines."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIALS])
    return tokenizer


def build_model(architecture: str = "llama", *, seed: int = 0, **overrides: object) -> PreTrainedModel:
    """Return a two-layer model of random weights, of sizes that every weight type can hold."""
    settings = {
        "vocab_size": 384,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.05,
        "eos_token_id": None,
        "bos_token_id": None,
        **_SPECIFIC.get(architecture, {}),
        **overrides,
    }
    torch.manual_seed(seed)
    kind, config = _KINDS[architecture]
    model: PreTrainedModel = kind(config(**settings)).eval()
    with torch.no_grad():  # transformers starts biases at zero and all of a kind of norms alike
        for name, parameter in model.named_parameters():
            if name.endswith((".bias", "norm.weight")):
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def reference_logits(model: PreTrainedModel, token_ids: list[int]) -> NDArray[np.float32]:
    """Return ``[len(token_ids), vocab_size]`` logits, by transformers in float32."""
    with torch.no_grad():
        logits: NDArray[np.float32] = model(torch.tensor([token_ids])).logits[0].numpy()
    return logits


def write_directory(
    model: PreTrainedModel, directory: Path, *, tokenizer: Tokenizer | None = None, dtype: torch.dtype = torch.float32
) -> Path:
    """Write config.json, safetensors, tokenizer.json and tokenizer_config.json."""
    model.to(dtype).save_pretrained(directory)
    (tokenizer or build_tokenizer(model.config.vocab_size)).save(str(directory / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "bos_token": None, "chat_template": CHAT_TEMPLATE, "add_bos_token": False}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


def write_gguf(
    model: PreTrainedModel,
    path: Path,
    weight_type: str = "F32",
    *,
    metadata: dict[str, object] | None = None,
    seed: int = 0,
) -> dict[str, NDArray[np.uint8]]:
    """Write a GGUF file; return the bytes of every tensor by its GGUF name.

    The tokenizer is that of ``metadata``, by default :func:`tokenizer_metadata` of :func:`build_tokenizer`.
    Matrices are of the given type, vectors F32 as in every GGUF. The codes of Q4_K, Q5_K and Q6_K are random (the gguf
    package cannot make them): such a file holds another model than the one given.
    """
    writer = gguf.GGUFWriter(path, model.config.model_type.removesuffix("_text"))
    _add_sizes(writer, model)
    for key, value in (metadata or tokenizer_metadata(build_tokenizer(model.config.vocab_size))).items():
        is_id = key.endswith("_id")  # llama.cpp insists on the type
        writer.add_key_value(key, value, gguf.GGUFValueType.UINT32 if is_id else gguf.GGUFValueType.get_type(value))
    rng = np.random.default_rng(seed)
    written: dict[str, NDArray[np.uint8]] = {}
    for name, values in gguf_weights(model).items():
        kind = GGMLQuantizationType[weight_type if values.ndim == 2 else "F32"]
        data = quantised(values, kind, rng)
        writer.add_tensor(name, data, raw_dtype=kind)
        written[name] = data.reshape(-1).view(np.uint8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


def gguf_weights(model: PreTrainedModel) -> dict[str, NDArray[np.float32]]:
    """Return the weights as GGUF names and lays them out."""
    heads = {"q": model.config.num_attention_heads, "k": model.config.num_key_value_heads}
    weights = {}
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        values = parameter.detach().to(torch.float32).numpy()
        letter = name.split("_proj")[0][-1]
        if model.config.model_type == "llama" and letter in heads and "self_attn" in name:
            values = _permuted(values, heads[letter])
        if model.config.model_type == "gemma3_text" and name.endswith("norm.weight"):
            values = values + 1
        weights[gguf_name(name, model.config.model_type)] = np.ascontiguousarray(values)
    return weights


def gguf_name(name: str, model_type: str = "llama") -> str:
    """Return the GGUF name of a weight of a transformers model."""
    names = _GEMMA_NAMES if model_type == "gemma3_text" else _GGUF_NAMES
    stem, kind = name.rsplit(".", 1)
    if not stem.startswith("model.layers."):
        return f"{names[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{names[part]}.{kind}"


def _permuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Put the two halves of each head's rows side by side, pair by pair."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(values.shape)


def quantised(values: NDArray[np.float32], kind: GGMLQuantizationType, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return rows of a type's blocks: those of the values or, for the K types, random ones."""
    return _random_blocks(values.shape, kind.name, rng) if kind.name in _K_BLOCKS else gguf.quantize(values, kind)


def _random_blocks(shape: tuple[int, ...], kind: str, rng: np.random.Generator) -> NDArray[np.uint8]:
    block_bytes, scales = _K_BLOCKS[kind]
    blocks = rng.integers(0, 256, (shape[0], shape[1] // 256, block_bytes), dtype=np.uint8)
    for offset in scales:
        scale = rng.uniform(1e-4, 1e-3, blocks.shape[:2]).astype(np.float16)
        blocks[..., offset : offset + 2] = scale[..., None].view(np.uint8)
    return blocks.reshape(shape[0], -1)


def _add_sizes(writer: gguf.GGUFWriter, model: PreTrainedModel) -> None:
    config = model.config
    writer.add_name(f"tiny {writer.arch}")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if config.model_type not in ("llama", "qwen2"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    rules = config.rope_parameters
    if writer.arch == "gemma3":
        rules = rules["full_attention"]
        writer.add_sliding_window(config.sliding_window)
    writer.add_rope_freq_base(rules["rope_theta"])
    if rules["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rules["factor"])


def tokenizer_metadata(tokenizer: Tokenizer, pre: str = "qwen2") -> dict[str, object]:
    """Return a byte-level tokenizer as the metadata of a GGUF file."""
    pieces = [piece for piece, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [3 if piece in SPECIALS else 1 for piece in pieces],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": pieces.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
