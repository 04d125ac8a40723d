"""llama.cpp as a child process that is asked over loopback: greedy answers, laws, and its own clock.

Two builds are known, both made by setup.py: the xllamacpp wheel, which is compiled for AVX2, and llama-server compiled
for this very machine. The rates are those that llama.cpp reports of itself, so the transport costs it nothing.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from outrider.metrics import SpeculationCounters
from outrider.metrics.paired import Answer

# Temperature 1 of the model's own law; llama.cpp would cut its tail by default.
_WHOLE_LAW = {"samplers": ["temperature"]}
# util-linux: the child ends when we do, however that goes.
TIED_TO_US = ("setpriv", "--pdeathsig", "TERM", "--")
WHEEL, NATIVE = "llama_cpp", "llama_cpp_native"
_WHEEL_SERVER = Path(__file__).with_name("llama_cpp_server.py")


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be set of llama.cpp; everything else keeps llama.cpp's default.

    The draft's settings are the best of those tried with the Qwen2.5-Coder pair on code: up to 2, 3, 4 or 8 tokens, and
    a limit of 0, 0.5 or 0.75. Flash attention makes no difference there.

    Attributes:
        draft_max: The most tokens drafted in a round.
        draft_p_min: Drafting stops at a token that the draft model finds less likely than this.
        ngram: Look drafts up in what was said before, with llama.cpp's own settings for that.
    """

    model: str
    threads: int
    context: int = 4096
    flash_attention: bool = True
    draft: str | None = None
    draft_max: int = 8
    draft_p_min: float = 0.75
    ngram: bool = False


@dataclass(frozen=True, slots=True)
class Build:
    """One llama.cpp: its name, what it says of itself, and the command that serves with it on a port."""

    name: str
    version: str
    command: Callable[[Settings, int], list[str]]


def installed(peers: Path) -> list[Build]:
    """Return the builds found under the folder that setup.py fills, the one made for this machine last.

    Raises:
        FileNotFoundError: There is none.
    """
    python, server = peers / WHEEL / "bin/python", peers / NATIVE / "bin/llama-server"
    builds = []
    if python.exists():
        launch = [str(python), str(_WHEEL_SERVER)]
        builds.append(Build("llama.cpp wheel", _version(launch), lambda s, port: [*launch, _document(s, port)]))
    if server.exists():
        builds.append(
            Build("llama.cpp native", _version([str(server)]), lambda s, port: [str(server), *_flags(s, port)])
        )
    if not builds:
        raise FileNotFoundError(f"no llama.cpp under {peers}: run make peers first")
    return builds


class LlamaCpp:
    """A llama.cpp process with a loaded model; a context manager that ends it."""

    def __init__(self, build: Build, settings: Settings) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [*TIED_TO_US, *build.command(settings, port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not self._is_ready():
            if self._process.poll() is not None:
                raise RuntimeError(f"{build.name} ended at once; see why with: {build.command(settings, port)}")
            time.sleep(0.1)

    def __enter__(self) -> LlamaCpp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, prompt: str | Sequence[int], num_tokens: int, **options: object) -> dict[str, Any]:
        """Return llama.cpp's raw answer: greedy, with its own settings changed as given."""
        question = {
            "prompt": prompt if isinstance(prompt, str) else list(prompt),
            "n_predict": num_tokens,
            "temperature": 0.0,
            "cache_prompt": False,
            "return_tokens": True,
        } | options
        request = urllib.request.Request(
            self._address + "/completion", json.dumps(question).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as reply:
            answer: dict[str, Any] = json.load(reply)
        return answer

    def complete(self, prompt: Sequence[int], num_tokens: int, temperature: float = 0.0) -> Answer:
        """Continue a prompt, up to and with an end-of-sequence token, by llama.cpp's clock; the prompt is read anew."""
        answer = self.ask(prompt, num_tokens, temperature=temperature, **_WHOLE_LAW)
        timings = answer["timings"]
        if timings["cache_n"] or timings["predicted_n"] != len(answer["tokens"]):
            raise RuntimeError(f"llama.cpp reused its prompt cache, or its tokens are not those timed: {timings}")
        drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        return Answer(
            tuple(answer["tokens"]),
            timings["prompt_n"],
            timings["prompt_ms"] / 1e3,
            timings["predicted_ms"] / 1e3,
            SpeculationCounters(num_draft_tokens=drafted, num_accepted_tokens=accepted),
        )

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._address + "/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, ConnectionError):  # not listening yet, or 503 while the model loads
            return False


def _version(launch: list[str]) -> str:
    run = subprocess.run([*launch, "--version"], capture_output=True, text=True, check=True)
    return " ".join((run.stdout + run.stderr).split())


def _document(settings: Settings, port: int) -> str:
    return json.dumps(asdict(settings) | {"port": port})


def _flags(settings: Settings, port: int) -> list[str]:
    flags: dict[str, object] = {
        "--model": settings.model,
        "--port": port,
        "--ctx-size": settings.context,
        "--parallel": 1,
        "--flash-attn": "on" if settings.flash_attention else "off",
        "--threads": settings.threads,
        "--threads-batch": settings.threads,
    }
    if settings.draft is not None:
        flags |= {
            "--spec-type": "draft-simple",
            "--model-draft": settings.draft,
            "--threads-draft": settings.threads,
            "--threads-batch-draft": settings.threads,
            "--spec-draft-n-max": settings.draft_max,
            "--spec-draft-p-min": settings.draft_p_min,
        }
    if settings.ngram:
        flags |= {"--spec-type": "ngram-simple"}
    return [str(word) for pair in flags.items() for word in pair]
