"""What does a pass that checks several tokens cost against a pass of one, and how near is it to the memory's speed?

    python -m benchmarks.verification_pass --model qwen2.5-coder-1.5b --context 256 4096 --out R.json

Times passes of 1, 2, 4, 8 and 16 rows at the end of one sequence, with logits for every row, as verification needs
them. Row counts take turns, so that whatever slows the machine down slows all of them. With ``--weights int8`` every
matrix is held in 8 bits, also one that the file has in fewer, which the core would leave alone. For llama.cpp the same
is had as the prompt evaluation of that many tokens behind a cached prefix; it computes the logits of one row only, a
cost less.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.models import load_backend, locate
from benchmarks.peers.llama_cpp import Build, LlamaCpp, Settings, installed
from benchmarks.provenance import add_output_arguments, hand_in
from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend, WeightFormat
from outrider.metrics.spread import paired_ratio, spread

QUESTION = "Cost of a pass of k rows against a pass of one row, and the share of the read bandwidth it reaches"
WEIGHTS: tuple[WeightFormat, ...] = get_args(WeightFormat)
ROWS = (1, 2, 4, 8, 16)
_READ_BYTES = 1 << 30
_PIECE = 128  # tokens in a pass that fills the context


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--model", required=True)
    parser.add_argument("--context", type=int, nargs="+", default=[256])
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=["file", "int8"])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    add_output_arguments(parser)
    arguments = parser.parse_args()
    path = locate(arguments.model)
    results: dict[str, object] = {
        "model": arguments.model,
        "threads": arguments.threads,
        "repeats": arguments.repeats,
        "read_gb_per_s": read_bandwidth(arguments.threads, arguments.repeats),
    }
    for context in arguments.context:
        engines: dict[str, object] = {}
        for weights in arguments.weights:
            engines[f"outrider {weights}"] = ours(path, weights, context, arguments)
        for build in installed(arguments.peers):
            engines[build.name] = {"version": build.version, **llama_cpp(path, build, context, arguments)}
        results[f"context {context}"] = engines
    hand_in(arguments, QUESTION, results)


def ours(path: Path, weights: WeightFormat, context: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Time our passes; the bandwidth is measured in between, on the same state of the machine."""
    max_length = context + max(ROWS)
    backend = load_backend(path, weights, max_length=max_length, threads=arguments.threads, as_floats=weights == "int8")
    sequence = fill(backend, context)

    def one_pass(rows: int) -> float:
        batch = [Rows(sequence, tokens(rows, backend.vocab_size), rows)]
        started = time.perf_counter()
        backend.forward(batch)
        seconds = time.perf_counter() - started
        backend.crop(sequence, context)
        return seconds

    times = take_turns(one_pass, arguments.repeats)
    bytes_read = backend.weight_bytes + backend.cache_bytes
    achieved = [bytes_read / seconds / 1e9 for seconds in times[1]]
    return {
        "isa": backend.isa,
        "weight_bytes": backend.weight_bytes,
        "cache_bytes": backend.cache_bytes,
        "gb_per_s_of_one_row": spread(achieved),
        **summary(times),
    }


def llama_cpp(path: Path, build: Build, context: int, arguments: argparse.Namespace) -> dict[str, object]:
    """Time llama.cpp's evaluation of k tokens behind a cached prefix."""
    settings = Settings(str(path), arguments.threads, context=context + 2 * max(ROWS))
    with LlamaCpp(build, settings) as server:
        prefix = tokens(context, 1000)
        server.ask(prefix, 0, cache_prompt=True)

        def one_pass(rows: int) -> float:
            # Two endings in turn, so that the cached sequence never holds more than the prefix.
            for ending in ([7] * rows, [8] * rows):
                timings = server.ask([*prefix, *ending], 0, cache_prompt=True)["timings"]
                if timings["prompt_n"] != rows:
                    raise RuntimeError(f"{build.name} evaluated {timings['prompt_n']} tokens instead of {rows}")
            return float(timings["prompt_ms"]) / 1e3

        times = take_turns(one_pass, arguments.repeats)
    return summary(times)


def take_turns(one_pass: Callable[[int], float], repeats: int) -> dict[int, list[float]]:
    """Time each row count once a turn; the first turn warms up and is not kept."""
    times: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for turn in range(repeats + 1):
        for rows in ROWS:
            seconds = one_pass(rows)
            if turn:
                times[rows].append(seconds)
    return times


def summary(times: dict[int, list[float]]) -> dict[str, object]:
    """Return the spread of each row count's time, and of its ratio to one row in the same turn."""
    return {
        "ms": {rows: spread([1e3 * seconds for seconds in times[rows]]) for rows in ROWS},
        "cost_against_one_row": {rows: paired_ratio(times[rows], times[1]) for rows in ROWS},
    }


def fill(backend: NativeBackend, context: int) -> int:
    """Open a sequence that holds ``context`` tokens."""
    sequence = backend.open_sequence()
    token_ids = tokens(context, backend.vocab_size)
    for start in range(0, context, _PIECE):
        backend.forward([Rows(sequence, token_ids[start : start + _PIECE], 0)])
    return sequence


def tokens(count: int, vocab_size: int) -> Sequence[int]:
    """Return arbitrary but fixed token ids: what they say does not matter to the time."""
    ids: list[int] = np.random.default_rng(count).integers(100, vocab_size, count).tolist()
    return ids


def read_bandwidth(threads: int, repeats: int) -> dict[str, float | int]:
    """Measure how fast this many threads read memory: libc's memchr over bytes that it does not find."""
    memchr = ctypes.CDLL(None).memchr
    memchr.argtypes, memchr.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    parts = np.array_split(np.ones(_READ_BYTES, np.uint8), threads)

    def read(part: NDArray[np.uint8]) -> None:
        if memchr(part.ctypes.data, 0, part.nbytes) is not None:
            raise AssertionError("there is no zero among ones")

    rates = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            started = time.perf_counter()
            list(pool.map(read, parts))
            rates.append(_READ_BYTES / (time.perf_counter() - started) / 1e9)
    return spread(rates)


if __name__ == "__main__":
    main()
