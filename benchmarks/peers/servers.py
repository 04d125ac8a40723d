"""Servers of the same models as child processes, ours and llama.cpp's, each asked over loopback in OpenAI's way."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

# util-linux: the child ends when we do, however that goes.
_TIED_TO_US = ("setpriv", "--pdeathsig", "TERM", "--")


@dataclass(frozen=True, slots=True)
class Spec:
    """A server to start: its name, the model's name in its API, and the command, to which a port is added."""

    name: str
    model: str
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Size:
    """How many threads compute, how many clients ask at a time, and how many tokens of context each has."""

    threads: int
    clients: int
    context: int


def ours(name: str, target: str, draft: str, size: Size) -> Spec:
    """Return ``outrider serve``."""
    command = [sys.executable, "-m", "outrider", "serve", "--target", target, "--draft", draft]
    limits = {"--threads": size.threads, "--max-sequences": size.clients, "--ctx-size": size.context}
    return Spec(name, target, [*command, *(str(word) for pair in limits.items() for word in pair)])


def llama_cpp(name: str, server: Path, target: Path, draft: Path | None, size: Size) -> Spec:
    """Return llama-server, with a slot for each client and a context of its own for each slot."""
    threads, context = size.threads, size.clients * size.context
    words: list[object] = [server, "--model", target, "--parallel", size.clients, "--ctx-size", context]
    words += ["--threads", threads, "--threads-batch", threads, "--flash-attn", "on"]
    if draft is not None:  # the best settings of benchmarks.peers.llama_cpp
        words += ["--spec-type", "draft-simple", "--model-draft", draft, "--threads-draft", threads]
        words += ["--threads-batch-draft", threads, "--spec-draft-n-max", 8, "--spec-draft-p-min", 0.75]
    return Spec(name, "any", [str(word) for word in words])


class Server:
    """A running server; a context manager that ends it.

    Args:
        spec: What to run.
        log: Where its stderr goes.
    """

    def __init__(self, spec: Spec, log: IO[bytes] | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.spec = spec
        self.address = f"http://127.0.0.1:{port}"
        command = [*_TIED_TO_US, *spec.command, "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log or subprocess.DEVNULL)
        while not self._is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"{spec.name} ended at once; see why with: {' '.join(command)}")
            time.sleep(0.1)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self.address + "/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):  # not there yet, or 503 while the model loads
            return False
