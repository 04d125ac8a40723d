"""Next-token laws of real text, by llama.cpp and by ourselves, and a place on disk for those that take minutes to get.

A law is a row of log probabilities, or of logits: who compares normalises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.llama_cpp import LlamaCpp
from outrider.backends.base import Backend, Rows

Laws = NDArray[np.float32]


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


def llama_cpp_laws(server: LlamaCpp, passage: Passage, vocab_size: int) -> Laws:
    """Return llama.cpp's ``[num_laws, vocab_size]``, one decoding step each, through its own softmax.

    The passage is fed to it token by token on the cached prefix, which is what it does when it decodes.
    """
    laws = np.full((passage.num_laws, vocab_size), np.nan, np.float32)
    for row in range(passage.num_laws):
        prefix = passage.token_ids[: passage.first + row + 1]
        answer = server.ask(prefix, 1, n_probs=vocab_size, cache_prompt=True)
        top = answer["completion_probabilities"][0]["top_logprobs"]
        laws[row, [entry["id"] for entry in top]] = [entry["logprob"] for entry in top]
    if np.isnan(laws).any():
        raise RuntimeError(f"llama.cpp gave fewer than {vocab_size} log probabilities")
    return laws


def backend_laws(backend: Backend, passage: Passage) -> Laws:
    """Return our logits, ``[num_laws, vocab_size]``. A row's bits do not depend on the pass, so one pass will do."""
    sequence = backend.open_sequence()
    logits = backend.forward([Rows(sequence, passage.token_ids, passage.num_laws)])
    backend.close_sequence(sequence)
    return logits
