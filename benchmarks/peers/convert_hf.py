"""Turns a GGUF file into bfloat16 safetensors, for transformers and vLLM, or those into 8-bit weights, for vLLM.

Runs in the environment ``transformers`` that setup.py makes: ``python convert_hf.py bf16|int8 GGUF|FOLDER FOLDER``.
The file's own quantisation is undone, not its effects, so that every engine runs the same model.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

WEIGHTS = "model.safetensors"
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
    """Write a GGUF file's model with its tokenizer, in bfloat16."""
    how = {"gguf_file": source.name}
    model: Any = AutoModelForCausalLM.from_pretrained(
        source.parent, **how, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.hf_quantizer = None  # transformers would not write what comes from a quantised file
    model.save_pretrained(folder, max_shard_size="100GB")
    AutoTokenizer.from_pretrained(source.parent, **how).save_pretrained(folder)


def to_int8(source: Path, folder: Path) -> None:
    """Round the weights of a model's layers to 8 bits, a scale a row; embeddings, head and norms stay."""
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(WEIGHTS))
    tensors = load_file(source / WEIGHTS)
    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        weights = tensors[name].float()
        scale = weights.abs().amax(1, keepdim=True) / 127
        tensors[name] = (weights / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale.bfloat16()
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": _QUANTIZATION}, indent=1))


def main() -> None:
    weights, source, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    (to_int8 if weights == "int8" else dequantise)(source, folder)


if __name__ == "__main__":
    main()
