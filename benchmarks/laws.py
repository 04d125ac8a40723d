"""Next-token laws of real text, by llama.cpp and by ourselves, and a place on disk for those that take minutes to get.

A law is a row of log probabilities, or of logits: who compares normalises.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.backends.base import Backend, Rows

Laws = NDArray[np.float32]
_LLAMA_CPP_LAWS = Path(__file__).with_name("peers") / "llama_cpp_laws.py"


@dataclass(frozen=True, slots=True)
class Passage:
    """A text as tokens, and from where on its next-token laws are compared.

    Attributes:
        first: The laws compared are those after tokens ``first .. len(token_ids) - 1``.
    """

    family: str
    token_ids: tuple[int, ...]
    first: int

    @property
    def num_laws(self) -> int:
        """How many positions are compared."""
        return len(self.token_ids) - self.first


def cached(folder: Path, name: str, passage: Passage, compute: Callable[[Passage], Laws]) -> Laws:
    """Return laws from disk, or compute and keep it. The folder stands for the model, the name for the engine."""
    key = hashlib.sha256(repr((passage.token_ids, passage.first)).encode()).hexdigest()[:16]
    path = folder / f"{name}-{key}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npy")
        np.save(partial, compute(passage))
        partial.rename(path)
    kept: Laws = np.load(path, mmap_mode="r")
    return kept


def llama_cpp_laws(native: Path, model: Path, passage: Passage) -> Laws:
    """Return llama.cpp's logits, ``[num_laws, vocab_size]``, one decoding step each.

    Args:
        native: The folder of the build for this machine, as setup.py makes it.
        model: A GGUF file.
        passage: What is fed to it, token by token behind the first.
    """
    task = {"model": str(model), "token_ids": passage.token_ids, "first": passage.first}
    run = subprocess.run(
        [native / "bin/python", "-I", _LLAMA_CPP_LAWS],  # isolated: our peers/llama_cpp.py has the bindings' name
        input=json.dumps(task).encode(),
        env={**os.environ, "LLAMA_CPP_LIB_PATH": str((native / "bin").absolute())},
        stdout=subprocess.PIPE,
        check=True,
    )
    return np.frombuffer(run.stdout, np.float32).reshape(passage.num_laws, -1)


def backend_laws(backend: Backend, passage: Passage) -> Laws:
    """Return our logits, ``[num_laws, vocab_size]``. A row's bits do not depend on the pass, so one pass will do."""
    sequence = backend.open_sequence()
    logits = backend.forward([Rows(sequence, passage.token_ids, passage.num_laws)])
    backend.close_sequence(sequence)
    return logits
