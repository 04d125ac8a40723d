"""Another engine as a child process that speaks JSON lines; ``worker`` has the contract."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.peers.llama_cpp import TIED_TO_US
from outrider.metrics import SpeculationCounters
from outrider.metrics.paired import Answer


class Piped:
    """An engine with a loaded model; a context manager that ends it.

    Args:
        command: What runs a worker.
        settings: Its settings, but for none.
        log: Where it may write whatever it has to say.
        environment: Variables beside our own.

    Raises:
        RuntimeError: It ended before its model was loaded; the message has its last words.
    """

    def __init__(
        self, command: Sequence[str | Path], settings: Mapping[str, Any], log: Path, environment: Mapping[str, str]
    ) -> None:
        self._log = log
        self._worker = Path(command[-1]).name
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as words:
            self._process = subprocess.Popen(
                [*TIED_TO_US, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                env={**os.environ, **environment},
                text=True,
            )
        self.version: str = self._exchange(settings)["version"]

    def __enter__(self) -> Piped:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def complete(self, prompt: Sequence[int], num_tokens: int, temperature: float, stop_ids: Sequence[int]) -> Answer:
        """Continue a prompt, up to and with a token that ends the answer.

        Raises:
            RuntimeError: The engine has ended; the message has its last words.
        """
        request = {"prompt_ids": prompt, "max_tokens": num_tokens, "temperature": temperature, "stop_ids": stop_ids}
        reply = self._exchange(request)
        return Answer(
            tuple(reply["token_ids"]),
            len(prompt),
            reply["first_token_s"],
            reply["decode_s"],
            SpeculationCounters(
                num_draft_tokens=reply["num_draft_tokens"], num_accepted_tokens=reply["num_accepted_tokens"]
            ),
            num_first_tokens=reply["num_first_tokens"],
        )

    def _exchange(self, document: Mapping[str, Any]) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("both are pipes")
        try:
            self._process.stdin.write(json.dumps(document) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._process.communicate()
            words = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            last = re.sub(r"/[\w./+-]*/", "", words[-1])  # it goes into the document, which names no folders
            raise RuntimeError(f"{self._worker} ended; its last words, in {self._log}: {last}")
        reply: dict[str, Any] = json.loads(line)
        return reply
