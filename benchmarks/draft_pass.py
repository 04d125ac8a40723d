"""What does a draft's pass over one row cost against the target's, and how near is each to the speed of memory?

    python -m benchmarks.draft_pass --target qwen2.5-coder-1.5b --drafts qwen2.5-coder-0.5b smollm2-135m --out R.json

The target and every draft, as its file has it and as the engine compresses it, take turns in one process, and so does a
plain reading of memory: whatever slows the machine down slows all of them.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.verification_pass import fill, read_bandwidth
from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend
from outrider.drafters.compression import DraftOptions
from outrider.metrics.spread import paired_ratio, spread
from outrider.models.open import open_model

QUESTION = "Cost of a draft's one-row pass against the target's, and the share of the read bandwidth of each"
CONTEXT = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafts", nargs="+", required=True)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    backends = {arguments.target: load(arguments.target, DraftOptions("file", vocab=None), arguments.threads)}
    for draft in arguments.drafts:
        backends[f"{draft}, as its file"] = load(draft, DraftOptions("file", vocab=None), arguments.threads)
        backends[f"{draft}, compressed"] = load(draft, DraftOptions(), arguments.threads)
    hand_in(arguments, QUESTION, {"context": CONTEXT, "threads": arguments.threads, **measure(backends, arguments)})


def load(reference: str, options: DraftOptions, threads: int) -> NativeBackend:
    """Load a model as the engine loads a draft with these options."""
    files = open_model(locate(reference))
    head_tokens = options.head_tokens(files.tokenizer, files.config.vocab_size)
    return NativeBackend.load(
        files.config,
        files.tensors,
        max_length=CONTEXT + 1,
        threads=threads,
        weights=options.weights,
        head_tokens=head_tokens,
    )


def measure(backends: dict[str, NativeBackend], arguments: argparse.Namespace) -> dict[str, object]:
    """Time one-row passes in turns; the first turn warms up and is not kept."""
    sequences = {name: fill(backend, CONTEXT) for name, backend in backends.items()}
    times: dict[str, list[float]] = {name: [] for name in backends}
    reads = []
    for turn in range(arguments.repeats + 1):
        rate = float(read_bandwidth(arguments.threads, 1)["median"])
        for name, backend in backends.items():
            started = time.perf_counter()
            backend.forward([Rows(sequences[name], [500], 1)])
            seconds = time.perf_counter() - started
            backend.crop(sequences[name], CONTEXT)
            if turn:
                times[name].append(seconds)
        if turn:
            reads.append(rate)
    target = times[arguments.target]
    passes = {
        name: {
            "bytes": backend.weight_bytes + backend.cache_bytes,
            "ms": spread([1e3 * seconds for seconds in times[name]]),
            "share_of_bandwidth": spread(shares(backend, times[name], reads)),
            "cost_against_target": paired_ratio(times[name], target),
        }
        for name, backend in backends.items()
    }
    return {"read_gb_per_s": spread(reads), "passes": passes}


def shares(backend: NativeBackend, times: list[float], reads: list[float]) -> list[float]:
    """Return what each pass read a second, by what memory gave in the same turn."""
    rates = (backend.weight_bytes + backend.cache_bytes) / np.array(times) / 1e9
    result: list[float] = (rates / np.array(reads)).tolist()
    return result


if __name__ == "__main__":
    main()
