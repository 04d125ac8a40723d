"""Serves one GGUF model with the llama.cpp of the xllamacpp wheel, on loopback, until it is terminated.

Runs in the environment that setup.py makes, not in ours, and knows nothing of Outrider. Its one argument is
``--version`` or a JSON document with the fields of ``peers.llama_cpp.Settings`` and ``port``.
"""

from __future__ import annotations

import json
import signal
import sys
from importlib.metadata import version
from typing import Any

import xllamacpp


def parameters(settings: dict[str, Any]) -> Any:
    """Turn our few settings into llama.cpp's; everything else keeps llama.cpp's default."""
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.port = settings["port"]
    params.n_ctx = settings["context"]
    params.n_parallel = 1
    flash = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = (
        flash.LLAMA_FLASH_ATTN_TYPE_ENABLED if settings["flash_attention"] else flash.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = settings["threads"]
    if settings["draft"] is not None:
        draft = params.speculative.draft
        draft.mparams.path = settings["draft"]
        draft.n_max = settings["draft_max"]
        draft.p_min = settings["draft_p_min"]
        for cpu in (draft.cpuparams, draft.cpuparams_batch):
            cpu.n_threads = settings["threads"]
        # A draft model alone is not enough: without a type, llama.cpp loads it and never uses it.
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    if settings["ngram"]:
        params.speculative.types = [xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    return params


def main() -> None:
    if sys.argv[1] == "--version":
        print(f"xllamacpp {version('xllamacpp')}, {xllamacpp.get_system_info()}")
        return
    server = xllamacpp.Server(parameters(json.loads(sys.argv[1])))
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
