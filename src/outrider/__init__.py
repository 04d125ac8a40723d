"""Outrider: lossless speculative decoding that pays on CPUs.

>>> from outrider import LLM, SamplingParams
>>> llm = LLM("qwen2.5-coder-1.5b", draft="qwen2.5-coder-0.5b")
>>> print(llm.generate("Reverse a list in Python.")[0].text)

Names are imported when they are first used, so that ``import outrider`` is instant.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.drafters.compression import DraftOptions as DraftOptions
    from outrider.engine.llm import LLM as LLM
    from outrider.engine.outputs import EmittedToken as EmittedToken
    from outrider.engine.outputs import GenerationOutput as GenerationOutput
    from outrider.engine.outputs import Origin as Origin
    from outrider.engine.outputs import StreamChunk as StreamChunk
    from outrider.errors import OutriderError as OutriderError
    from outrider.sampling.params import SamplingParams as SamplingParams

_HOMES = {
    "DraftOptions": "outrider.drafters.compression",
    "LLM": "outrider.engine.llm",
    "EmittedToken": "outrider.engine.outputs",
    "GenerationOutput": "outrider.engine.outputs",
    "Origin": "outrider.engine.outputs",
    "StreamChunk": "outrider.engine.outputs",
    "OutriderError": "outrider.errors",
    "SamplingParams": "outrider.sampling.params",
}

__all__ = [
    "LLM",
    "DraftOptions",
    "EmittedToken",
    "GenerationOutput",
    "Origin",
    "OutriderError",
    "SamplingParams",
    "StreamChunk",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version("outrider")
    if name not in _HOMES:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
