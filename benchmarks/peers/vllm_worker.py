"""vLLM for CPU: plain, with a draft model, or with n-grams. See ``worker`` for the contract."""

from __future__ import annotations

import os
import time

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB: 37,000 tokens of the 1.5B model
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # one request at a time gains nothing from another process
    "NUMBA_THREADING_LAYER": "workqueue",  # the default one spins where n-grams are looked up
}

from vllm import LLM, SamplingParams, __version__
from worker import Clock, Document, serve

# The best of 3 and 5 tried on code and prose; for n-grams as its documentation has them.
_DRAFT_TOKENS = 3
_NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


def load(settings: Document) -> tuple[str, object]:
    speculative = None
    if settings["draft"]:
        speculative = {
            "method": "draft_model",
            "model": settings["draft"],
            "num_speculative_tokens": _DRAFT_TOKENS,
            "max_model_len": settings["context"],
        }
    if settings["ngram"]:
        speculative = _NGRAM
    llm = LLM(
        settings["target"],
        dtype="bfloat16",
        max_model_len=settings["context"],
        max_num_seqs=1,
        enforce_eager=True,  # compiling takes minutes and gains nothing clear
        enable_prefix_caching=False,
        speculative_config=speculative,
        disable_log_stats=False,
    )

    def count(name: str) -> int:
        return sum(metric.value for metric in llm.get_metrics() if metric.name == f"vllm:spec_decode_num_{name}")

    def answer(request: Document) -> Document:
        params = SamplingParams(
            temperature=request["temperature"], max_tokens=request["max_tokens"], stop_token_ids=request["stop_ids"]
        )
        before = count("draft_tokens"), count("accepted_tokens")
        clock = Clock(time.perf_counter)
        llm.llm_engine.add_request(str(time.monotonic_ns()), {"prompt_token_ids": request["prompt_ids"]}, params)
        ids: list[int] = []
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                new = list(output.outputs[0].token_ids)
                clock.see(len(new) - len(ids))
                ids = new
        return clock.reply(ids, count("draft_tokens") - before[0], count("accepted_tokens") - before[1])

    return f"vLLM {__version__}", answer


if __name__ == "__main__":
    serve(load)
