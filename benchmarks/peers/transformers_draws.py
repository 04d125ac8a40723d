"""Draws of transformers, plain or by assisted generation, as one JSON document on stdout.

Runs in the environment ``transformers`` that setup.py makes, and knows nothing of Outrider. Reads one JSON document
from stdin: target and draft (folders with one GGUF file each; draft may be null), prefixes (token ids), num_draws,
length, num_assistant_tokens, temperature, first_seed. Weights and arithmetic are float32.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers

SIDE_BY_SIDE = 64  # plain draws


def load(folder: str) -> Any:
    [file] = Path(folder).glob("*.gguf")
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32)
    model.eval()
    model.generation_config.eos_token_id = None
    return model


def main() -> None:
    task = json.load(sys.stdin)
    torch.set_num_threads(1)
    target = load(task["target"])
    options: dict[str, Any] = {"max_new_tokens": task["length"], "do_sample": task["temperature"] > 0}
    options["pad_token_id"] = 0
    if options["do_sample"]:
        options |= {"temperature": task["temperature"], "top_k": 0, "top_p": 1.0}
    if task["draft"] is not None:
        draft = load(task["draft"])
        draft.generation_config.num_assistant_tokens = task["num_assistant_tokens"]
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
        options["assistant_model"] = draft
    torch.manual_seed(task["first_seed"])
    drawn = []
    for prefix in task["prefixes"]:
        prompt = torch.tensor([prefix])
        draws: list[list[int]] = []
        while len(draws) < task["num_draws"]:
            # Assisted generation draws one answer at a time.
            num = 1 if task["draft"] is not None else min(SIDE_BY_SIDE, task["num_draws"] - len(draws))
            tokens = target.generate(
                prompt, attention_mask=torch.ones_like(prompt), num_return_sequences=num, **options
            )
            draws += tokens[:, len(prefix) :].tolist()
        drawn.append(draws)
    print(json.dumps({"version": f"transformers {version('transformers')}, torch {torch.__version__}", "draws": drawn}))


if __name__ == "__main__":
    main()
