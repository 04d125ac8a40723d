"""Runs every benchmark with its published settings and leaves the documents in benchmarks/results.

    python -m benchmarks.run_all [NAME ...] [--OPTION ...]

Options are handed on to the benchmarks, after their own.

Two hours on two cores, half of them for ``peers``, and only worth it on a machine that does nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

TARGET, DRAFT, SMALL = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"
HUMANEVAL = ["--families", "humaneval", "--per-family", "10", "--rounds", "1"]
BRIEF = ["--per-family", "1", "--rounds", "2"]
BRIEF_SERVING = ["--per-family", "1", "--num-tokens", "64"]

# Name of the result: the benchmark and its arguments.
RUNS: dict[str, list[str]] = {
    "verification-pass-1.5b": ["verification_pass", "--model", TARGET, "--context", "256", "4096", "--repeats", "9"],
    "verification-pass-0.5b": ["verification_pass", "--model", DRAFT],
    "decoding-1.5b": ["decoding", "--target", TARGET, *BRIEF],
    "decoding-0.5b": ["decoding", "--target", DRAFT, *BRIEF],
    "decoding-smollm2": ["decoding", "--target", SMALL, *BRIEF],
    "speculative-humaneval": ["decoding", "--target", TARGET, "--draft", DRAFT, *HUMANEVAL],
    "speculative-families": ["decoding", "--target", TARGET, "--draft", DRAFT, "--ngram", *BRIEF],
    "cross-vocabulary-humaneval": ["cross_vocabulary", "--target", TARGET, "--draft", SMALL, *HUMANEVAL],
    "cross-vocabulary-families": ["cross_vocabulary", "--target", TARGET, "--draft", SMALL, *BRIEF],
    "overhead": ["overhead", "--target", TARGET, "--draft", DRAFT],
    "rules": ["rules", "--target", TARGET, "--draft", DRAFT, "--per-family", "1", "--stride", "16"],
    "cascade": ["cascade", "--target", TARGET, "--draft", DRAFT, "--per-family", "6", "--rounds", "1"],
    "peers": ["peers.compare", "--target", TARGET, "--draft", DRAFT],
    "peers-code": [
        "peers.compare",
        "--target",
        TARGET,
        "--draft",
        DRAFT,
        "--families",
        "humaneval",
        "--per-family",
        "8",
        "--max-tokens",
        "128",
        "--only",
        "llama.cpp native plain",
        "llama.cpp native ngram",
    ],
    "planning": [
        "planning",
        "--target",
        TARGET,
        "--drafts",
        DRAFT,
        SMALL,
        "ngram",
        "--per-family",
        "3",
    ],
    "adapt": ["adapt", "--target", TARGET, "--draft", DRAFT, "--per-family", "4", "--rounds", "3"],
    "edits": ["edits", "--target", TARGET],
    "serving-smollm2": ["serving", "--target", SMALL, "--draft", "ngram"],
    "serving-1.5b": ["serving", "--target", TARGET, "--draft", DRAFT, *BRIEF_SERVING],
    "soak": ["soak", "--target", SMALL],
    "audit-power": ["audit_power", "--faults", "all", "--rules", "token", "block", "--jobs", "2"],
    "audit-power-smollm2": ["audit_power", "--model", SMALL, "--runs", "2"],
    "audit-false-alarms": [
        "audit_power",
        "--distances",
        "0",
        "--rules",
        "token",
        "block",
        "--runs",
        "6000",
        "--jobs",
        "2",
    ],
    "identity": ["identity", "--target", TARGET, "--draft", DRAFT, "--num-tokens", "48"],
    "draft-pass": ["draft_pass", "--target", TARGET, "--drafts", DRAFT, SMALL],
    "loading-1.5b": ["loading", "--model", TARGET],
    "numerics-1.5b": ["numerics", "--model", TARGET],
    "numerics-0.5b": ["numerics", "--model", DRAFT],
    "numerics-smollm2": ["numerics", "--model", SMALL],
    # Beyond the window of 512 tokens of most layers.
    "numerics-gemma": ["numerics", "--model", "gemma-3-270m", "--context", "520"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the benchmarks with their published settings.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(RUNS)}; by default all")
    arguments, handed_on = parser.parse_known_args()
    names = arguments.names
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(RUNS)}")
    for name in names or RUNS:
        module, *options = RUNS[name]
        command = [sys.executable, "-m", f"benchmarks.{module}", *options, *handed_on]
        command += ["--out", f"benchmarks/results/{name}.json"]
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
