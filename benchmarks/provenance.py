"""Where a figure comes from, and the one way a benchmark hands in its document."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

# What decides how fast and how exact a kernel can be; a processor's other flags are noise here.
_TELLING_FLAGS = (
    *("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_vbmi", "avx512_bf16"),
    *("amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve"),
)
_PACKAGES = ("outrider", "numpy")


@dataclass(frozen=True, slots=True)
class Provenance:
    """What someone needs to know to judge a figure or to get it again.

    Attributes:
        cpu_flags: The instruction sets that matter here; without ``amx_int8`` there is no AMX.
        git_commit: Of the code measured; ``-dirty`` behind it says that the code was changed.
        load_average: Of the minute before; well above the number of threads, timings are only indicative.
        argv: The command as it was given, but for the place of the interpreter.
    """

    date: str
    cpu_model: str
    cpu_flags: tuple[str, ...]
    cpus: int
    memory_gib: float
    load_average: float
    platform: str
    python: str
    packages: Mapping[str, str]
    git_commit: str
    argv: tuple[str, ...]


def provenance(date: datetime) -> Provenance:
    """Look at the machine, the environment and the repository, which is the working directory."""
    model, flags = parse_cpuinfo(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return Provenance(
        date=date.isoformat(timespec="seconds"),
        cpu_model=model,
        cpu_flags=flags,
        cpus=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        load_average=round(os.getloadavg()[0], 2),
        platform=platform.platform(),
        python=platform.python_version(),
        packages={name: version(name) for name in _PACKAGES},
        git_commit=_git_commit(),
        argv=("python", *sys.orig_argv[1:]),
    )


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the processor's name and its telling flags from the text of /proc/cpuinfo, x86 or Arm."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    present = set(fields.get("flags", fields.get("Features", "")).split())
    family = f"(family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else ""
    name = f"{fields.get('model name', platform.machine())} {family}".strip()
    return name, tuple(flag for flag in _TELLING_FLAGS if flag in present)


def _git_commit() -> str:
    head = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
    code = ["src", "csrc", "benchmarks", ":!benchmarks/results"]
    changed = subprocess.run(["git", "status", "--porcelain", "--", *code], capture_output=True, text=True, check=True)
    return head.stdout.strip() + ("-dirty" if changed.stdout else "")


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what every benchmark takes: where its document goes, and the date it bears.

    Where the figures come from is looked up here, before they are taken: the repository may go on meanwhile.
    """
    parser.set_defaults(provenance=provenance(datetime.now(timezone.utc)))
    parser.add_argument("--out", type=Path, help="also write the document to this file")
    parser.add_argument("--date", type=datetime.fromisoformat, help="ISO date to state instead of the clock's")


def hand_in(arguments: argparse.Namespace, question: str, results: Mapping[str, object]) -> None:
    """Print the document as the last line of stdout, and write it to ``--out``."""
    print(json.dumps(keep(arguments, question, results)))


def keep(arguments: argparse.Namespace, question: str, results: Mapping[str, object]) -> dict[str, object]:
    """Write the document to ``--out``, if that is given, as far as it has come, and return it."""
    stated = {} if arguments.date is None else {"date": arguments.date.isoformat(timespec="seconds")}
    document: dict[str, object] = {
        "question": question,
        "provenance": {**asdict(arguments.provenance), **stated},
        "results": results,
    }
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        partial = arguments.out.with_name(f"{arguments.out.name}.partial")
        partial.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        partial.rename(arguments.out)
    return document
