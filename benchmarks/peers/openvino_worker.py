"""OpenVINO GenAI: plain, with a draft model, or with prompt lookup. See ``worker`` for the contract."""

from __future__ import annotations

import time

import numpy as np
import openvino
import openvino_genai
from worker import Clock, Document, serve

_DRAFT_TOKENS = 5  # as its samples have it
_LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}  # likewise


class Arrivals(openvino_genai.StreamerBase):  # type: ignore[misc]
    """Tells a clock of tokens as they are generated."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def write(self, token: int | list[int]) -> openvino_genai.StreamingStatus:
        """See the base class."""
        self._clock.see(len(token) if isinstance(token, list) else 1)
        return openvino_genai.StreamingStatus.RUNNING

    def end(self) -> None:
        """See the base class."""


def load(settings: Document) -> tuple[str, object]:
    device = {"INFERENCE_NUM_THREADS": settings["threads"], "PERFORMANCE_HINT": "LATENCY"}
    options = {}
    if settings["draft"]:
        options = {"draft_model": openvino_genai.draft_model(settings["draft"], "CPU", **device)}
    if settings["ngram"]:
        options = {"prompt_lookup": True}
    pipeline = openvino_genai.LLMPipeline(settings["target"], "CPU", **options, **device)

    def answer(request: Document) -> Document:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = request["max_tokens"]
        config.stop_token_ids = set(request["stop_ids"])
        config.do_sample = request["temperature"] > 0
        if config.do_sample:
            config.temperature = request["temperature"]
        if settings["draft"]:
            config.num_assistant_tokens = _DRAFT_TOKENS
        if settings["ngram"]:
            config.num_assistant_tokens = _LOOKUP["num_assistant_tokens"]
            config.max_ngram_size = _LOOKUP["max_ngram_size"]
        clock = Clock(time.perf_counter)
        result = pipeline.generate(openvino.Tensor(np.array([request["prompt_ids"]])), config, Arrivals(clock))
        metrics = getattr(result, "extended_perf_metrics", None)
        accepted = metrics.get_num_accepted_tokens() if metrics is not None else 0
        return clock.reply(list(result.tokens[0]), num_accepted_tokens=accepted)

    return f"openvino-genai {openvino_genai.get_version()}", answer


if __name__ == "__main__":
    serve(load)
