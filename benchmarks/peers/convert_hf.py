"""Turns a GGUF file into what transformers and vLLM read: bfloat16 safetensors, or those with 8-bit weights for vLLM.

Runs in the environment ``transformers`` that setup.py makes, not in ours: ``python convert_hf.py GGUF FOLDER bf16|int8``.
The file's own quantisation is undone, not its effects, so that every engine runs the same model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

_EIGHT_BITS = {"num_bits": 8, "type": "int", "symmetric": True}
# What vLLM multiplies in 8 bits on CPUs: a scale a weight row, fixed, and a scale a token, found at run time.
_QUANTIZATION = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**_EIGHT_BITS, "strategy": "channel", "dynamic": False},
            "input_activations": {**_EIGHT_BITS, "strategy": "token", "dynamic": True},
        }
    },
}


def dequantise(source: Path, folder: Path) -> None:
    """Write the model with its tokenizer, in bfloat16."""
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="100GB")
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


def to_int8(folder: Path) -> None:
    """Round the weights of a model's layers to 8 bits, a scale a row; embeddings and norms stay."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weights = tensors[name].float()
        scale = weights.abs().amax(1, keepdim=True) / 127
        tensors[name] = (weights / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale.bfloat16()
    save_file(tensors, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": _QUANTIZATION}, indent=1))


def main() -> None:
    source, folder, weights = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    dequantise(source, folder)
    if weights == "int8":
        to_int8(folder)


if __name__ == "__main__":
    main()
