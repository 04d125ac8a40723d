"""The reference of the numerics: transformers, float32, on the dequantised weights of a GGUF file.

What an engine differs by from it is the engine's arithmetic alone, never the file's quantisation. That it reads the
file rightly shows in that engines written apart come close to it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.laws import Laws, Passage


class Reference:
    """A model of the reference, loaded at the first use, if there is one: it takes 4 bytes a weight."""

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._threads = threads
        self._model: Any = None

    def laws(self, passage: Passage) -> Laws:
        """Return ``[num_laws, vocab_size]`` log probabilities, from one pass over the passage."""
        if self._model is None:
            torch.set_num_threads(self._threads)
            self._model = AutoModelForCausalLM.from_pretrained(
                str(self._path.parent), gguf_file=self._path.name, dtype=torch.float32
            )
        with torch.inference_mode():
            logits = self._model(torch.tensor([passage.token_ids]), logits_to_keep=passage.num_laws).logits[0]
            laws: Laws = torch.log_softmax(logits.double(), dim=-1).float().numpy()
        return laws
