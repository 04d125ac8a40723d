"""Models as the benchmarks need them: by reference, with the weights held as asked."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from outrider.backends.native import NativeBackend, WeightFormat
from outrider.models.config import TensorSource
from outrider.models.open import open_model
from outrider.models.resolve import resolve


def locate(reference: str) -> Path:
    """Return where a model lies: a catalog name, a path or ``hf:owner/repo/file``; downloaded if need be."""
    return resolve(reference, os.environ)


def load_backend(
    path: Path, weights: WeightFormat, *, max_length: int, threads: int, as_floats: bool = False
) -> NativeBackend:
    """Load a model's weights, and nothing else of it.

    ``as_floats`` hands them over as float32, so that ``weights`` says how each is held: what a file has in 8 bits or
    fewer stays as it is under ``"int8"``. Needs the ``reference`` extra.
    """
    files = open_model(path)
    tensors = map(_dequantised, files.tensors) if as_floats else files.tensors
    return NativeBackend.load(files.config, tensors, max_length=max_length, threads=threads, weights=weights)


def _dequantised(tensor: TensorSource) -> TensorSource:
    import gguf  # noqa: PLC0415 - for those who ask alone

    rows = tensor.data.reshape(*tensor.shape[:-1], -1)
    values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[tensor.type])
    return replace(tensor, type="F32", data=np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint8))
