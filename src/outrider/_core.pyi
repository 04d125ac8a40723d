"""The native core.

Arguments that cannot be honoured raise ``ValueError`` and change nothing; the message names the value, the limit and
what to do. Memory that is not to be had raises ``MemoryError``.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from outrider.types import Logits

MAX_THREADS: int
_MetadataValue: TypeAlias = int | float | bool | str | list[str] | NDArray[np.generic]

class ContextOverflow(ValueError):  # noqa: N818
    """A sequence would outgrow ``max_length``."""

class ModelConfig:
    """A decoder described by data: see :class:`outrider.models.config.ModelConfig`. Every number must be set."""

    vocab_size: int
    context_length: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    norm_offset: float
    qkv_bias: bool
    qk_norm: bool
    post_norms: bool
    activation: str
    embedding_scale: float
    query_scale: float
    rope_style: str
    rope_inv_freq: Sequence[float]
    layer_windows: Sequence[int]
    windowed_rope_inv_freq: Sequence[float]

class Model:
    """A model and the caches of its sequences, used by one thread at a time; a second one gets a ``ValueError``.

    Attributes:
        weight_bytes: Size of the packed weights. A pass over one token reads all of them once, and little else.
        cache_bytes: Size of the memory that the sequences' caches hold now.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        threads: int,
        max_length: int,
        isa: str,
    ) -> None:
        """``isa`` is one of :func:`available_isas` or empty for the best of them."""

    def add_tensor(
        self,
        *,
        role: str,
        layer: int | None,
        type: str,  # noqa: A002  (the word of TensorSource)
        shape: Sequence[int],
        data: NDArray[np.uint8],
        pack_as: str,
    ) -> None:
        """Pack one tensor: see ``TensorSource``. ``data`` of the embedding is kept, all others are copied.

        ``pack_as`` is ``"file"`` (the file's own codes, without loss), ``"int8"``, ``"int4"`` (what the file holds in
        4 bits stays as it is) or ``"bfloat16"``; vectors are always held as float32.
        """

    def cut_head(self, token_ids: Sequence[int]) -> None:
        """Keep the rows of these tokens only of the output matrix; the logits of all others are minus infinity.

        Ids in ascending order. To be called once, before the output matrix is added.
        """

    def finish(self) -> None:
        """Check that no tensor is missing; call it after the last one and before the first pass."""

    def open(self) -> int: ...
    def close(self, sequence_id: int) -> None: ...
    def length(self, sequence_id: int) -> int: ...
    def fork(self, sequence_id: int) -> int: ...
    def crop(self, sequence_id: int, length: int) -> None: ...
    def forward(
        self, sequence_ids: Sequence[int], token_ids: Sequence[Sequence[int]], num_logits: Sequence[int]
    ) -> Logits:
        """Run one pass: see ``Backend.forward``.

        Raises:
            ContextOverflow: A sequence would outgrow ``max_length``.
        """

    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def cache_bytes(self) -> int: ...

def available_isas() -> list[str]:
    """Return the instruction sets that this build and this machine have, the best last."""

def parse_gguf(
    file: NDArray[np.uint8],
) -> tuple[dict[str, _MetadataValue], list[tuple[str, str, tuple[int, ...], int, int]]]:
    """Return the metadata of a GGUF file and, for each tensor, its name, type, shape, offset and size in bytes.

    Shapes have the slowest dimension first. Everything is checked against the file's size.
    """
