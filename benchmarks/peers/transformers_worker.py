"""transformers: plain, assisted by a draft model, or by prompt lookup; bfloat16. See ``worker`` for the contract."""

from __future__ import annotations

import time
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM
from worker import Clock, Document, serve

_LOOKUP_TOKENS = 10  # as its documentation has it


class Arrivals(transformers.generation.streamers.BaseStreamer):
    """Tells a clock of tokens as they are generated."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_prompt = True

    def put(self, value: torch.Tensor) -> None:
        """See the base class: the prompt comes first."""
        if not self._is_prompt:
            self._clock.see(value.numel())
        self._is_prompt = False

    def end(self) -> None:
        """See the base class."""


def load(settings: Document) -> tuple[str, object]:
    torch.set_num_threads(settings["threads"])
    paths = [path for path in (settings["target"], settings["draft"]) if path]
    models: list[Any] = [AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16) for path in paths]
    target, *draft = models
    options = {"assistant_model": draft[0]} if draft else {}
    if settings["ngram"]:
        options = {"prompt_lookup_num_tokens": _LOOKUP_TOKENS}

    def answer(request: Document) -> Document:
        ids = torch.tensor([request["prompt_ids"]])
        sampling: dict[str, Any] = {"do_sample": False}
        if request["temperature"]:
            sampling = {"do_sample": True, "temperature": request["temperature"], "top_k": 0, "top_p": 1.0}
        clock = Clock(time.perf_counter)
        with torch.inference_mode():
            output = target.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request["max_tokens"],
                eos_token_id=request["stop_ids"],
                pad_token_id=request["stop_ids"][0],
                repetition_penalty=1.0,
                streamer=Arrivals(clock),
                **sampling,
                **options,
            )
        return clock.reply(output[0, ids.shape[1] :].tolist())

    return f"transformers {transformers.__version__}, torch {torch.__version__}", answer


if __name__ == "__main__":
    serve(load)
