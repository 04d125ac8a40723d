"""How long does a model take to load, and how much memory at most?

    python -m benchmarks.loading --model qwen2.5-coder-1.5b --out R.json

Every load is a process of its own, timed from its start to the loaded model, with its largest resident size. Before a
first load the file is dropped from the system's cache, as far as the system heeds that; second loads find it there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from outrider.metrics.spread import spread

QUESTION = "Seconds to load a model, and peak memory against the size of its file"
_LOAD = """
import json, resource, sys
from outrider.engine.loading import load_model
load_model(sys.argv[1], threads=int(sys.argv[2]), ctx_size=2048)
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--model", required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    path = locate(arguments.model)
    results: dict[str, object] = {"model": arguments.model, "file_bytes": path.stat().st_size}
    for name, is_first in (("first", True), ("second", False)):
        loads = [load(path, arguments.threads, is_first=is_first) for _ in range(arguments.repeats)]
        walls, cpus, peaks = zip(*loads, strict=True)
        results[name] = {
            "wall_s": spread(walls),
            "cpu_s": spread(cpus),
            "peak_bytes": spread(peaks),
            "peak_against_file": max(peaks) / path.stat().st_size,
        }
    hand_in(arguments, QUESTION, results)


def load(path: Path, threads: int, *, is_first: bool) -> tuple[float, float, int]:
    """Load once; return the seconds that passed, those of computing, and the peak in bytes."""
    if is_first:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _LOAD, str(path), str(threads)], stdout=subprocess.PIPE, check=True)
    wall = time.perf_counter() - started
    peak, cpu = json.loads(done.stdout)
    return wall, cpu, peak


if __name__ == "__main__":
    main()
