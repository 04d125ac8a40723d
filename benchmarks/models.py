"""Models as the benchmarks need them: by reference, with the weights held as asked."""

from __future__ import annotations

import os
from pathlib import Path

from outrider.backends.native import NativeBackend, WeightFormat
from outrider.models.open import open_model
from outrider.models.resolve import resolve


def locate(reference: str) -> Path:
    """Return where a model lies: a catalog name, a path or ``hf:owner/repo/file``; downloaded if need be."""
    return resolve(reference, os.environ)


def load_backend(path: Path, weights: WeightFormat, *, max_length: int, threads: int) -> NativeBackend:
    """Load a model's weights, and nothing else of it."""
    files = open_model(path)
    return NativeBackend.load(files.config, files.tensors, max_length=max_length, threads=threads, weights=weights)
