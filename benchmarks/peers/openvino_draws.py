"""Draws of OpenVINO GenAI, with or without a draft model, as one JSON document on stdout.

Runs in the environment ``openvino`` that setup.py makes, and knows nothing of Outrider. Reads one JSON document from
stdin: target and draft (folders with a model in OpenVINO's form, or with one GGUF file, beside which that form is then
written; draft may be null), prefixes (token ids), num_draws, length, num_assistant_tokens, temperature, first_seed.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import openvino_genai

_BATCH = 64
_PLUGIN = {"INFERENCE_NUM_THREADS": 1}


def converted(folder: str) -> str:
    """Return a folder that holds a model in OpenVINO's own form."""
    if not (Path(folder) / "openvino_model.xml").exists():
        [file] = Path(folder).glob("*.gguf")
        openvino_genai.LLMPipeline(str(file), "CPU", enable_save_ov_model=True)
    return folder


def settings(task: dict[str, Any], seed: int) -> Any:
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = task["length"]
    config.ignore_eos = True
    config.do_sample = task["temperature"] > 0
    if config.do_sample:
        config.temperature = task["temperature"]
    config.rng_seed = seed  # the default is 0 for every request, which makes all draws the same
    if task["draft"] is not None:
        config.num_assistant_tokens = task["num_assistant_tokens"]
    return config


def main() -> None:
    task = json.load(sys.stdin)
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    plugin: dict[str, Any] = dict(_PLUGIN)
    if task["draft"] is not None:
        plugin["draft_model"] = openvino_genai.draft_model(converted(task["draft"]), "CPU", **_PLUGIN)
    pipeline = openvino_genai.ContinuousBatchingPipeline(converted(task["target"]), scheduler, "CPU", plugin)
    seed, drawn = task["first_seed"], []
    for prefix in task["prefixes"]:
        draws: list[list[int]] = []
        while len(draws) < task["num_draws"]:
            num = min(_BATCH, task["num_draws"] - len(draws))
            prompts = [openvino.Tensor(np.array([prefix], dtype=np.int64))] * num
            answers = pipeline.generate(prompts, [settings(task, seed + index) for index in range(num)])
            draws += [list(answer.m_generation_ids[0]) for answer in answers]
            seed += num
        drawn.append(draws)
    print(json.dumps({"version": f"openvino-genai {version('openvino-genai')}", "draws": drawn}))


if __name__ == "__main__":
    main()
