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
    cache_window: int

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

        ``pack_as`` is ``"file"`` (the file's own codes, without loss), ``"int8"``, ``"int4"`` (for both, what the file
        holds in no more bits stays as it is) or ``"bfloat16"``; vectors are always held as float32.
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
    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None: ...
    def forward(
        self,
        sequence_ids: Sequence[int],
        token_ids: Sequence[Sequence[int]],
        num_logits: Sequence[int],
        parents: Sequence[Sequence[int] | None],
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

class Law:
    """A law over a vocabulary, or unnormalised weights that are left of one; never modified.

    Where few tokens are left it lists them; a softmax over everything keeps a copy of its logits and works out what is
    looked at. Everything has the same bits on every instruction set. ``isa`` is as for :class:`Model`.
    """

    @staticmethod
    def softmax(
        logits: NDArray[np.float32],
        *,
        temperature: float,
        min_p: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        typical_p: float = 1.0,
        borrow: bool = False,
        isa: str = "",
    ) -> Law:
        """Return the law of a row of logits ``[vocab_size]``; the defaults limit nothing.

        Probabilities below e**-708 of the largest are zero. With ``borrow`` no copy of the logits is made; they must
        not change as long as the law is used.

        Raises:
            ValueError: The largest logit is not finite, one is NaN, or a parameter is out of range.
        """

    @staticmethod
    def listed(
        weights: NDArray[np.float64],
        ids: NDArray[np.int32] | None = None,
        vocab_size: int | None = None,
        *,
        isa: str = "",
    ) -> Law:
        """Return given weights as they are, of every id or of the ascending ids given; others have weight zero.

        Raises:
            ValueError: A weight is not a finite number of at least zero, or ids are out of order or range.
        """

    @property
    def shape(self) -> tuple[int]: ...
    @property
    def dtype(self) -> np.dtype[np.float64]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, token_id: int, /) -> float: ...
    def __array__(self, dtype: object = None, copy: object = None) -> NDArray[np.float64]: ...
    def sum(self) -> float: ...
    def max(self) -> float: ...
    def draw(self, uniform: float) -> int:
        """Return the id at which the cumulated weights pass ``uniform``, in [0, 1), times their sum: ``draw_at``."""

    def race(self, key: int) -> int:
        """Return the id of the least noise / weight: ``race`` in ``verification/coupled.py``."""

    def residual(self, drafted: Law, scale: float = 1.0) -> Law:
        """Return ``max(scale * self - drafted, 0)``, not normalised."""

    def normalised(self) -> Law: ...
    def without(self, token_id: int) -> Law:
        """Return the law of another token than this one; all zero if there is none."""

    def top(self, count: int) -> list[tuple[int, float]]:
        """Return the likeliest ids with their probabilities: the lower id on a tie, and none that is impossible."""

def has_token(logits: NDArray[np.float32]) -> bool:
    """Return whether any of a row of logits ``[vocab_size]`` is not minus infinity."""

def argmax(logits: NDArray[np.float32], *, isa: str = "") -> tuple[int, float]:
    """Return where the largest value is and what it is: the lowest index on a tie, the first NaN if there is any."""

def shape_row(
    row: NDArray[np.float32],
    *,
    bias_ids: NDArray[np.int64],
    biases: NDArray[np.float32],
    seen_ids: NDArray[np.int64],
    output_counts: NDArray[np.int64],
    excluded_ids: NDArray[np.int64],
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    allowed: NDArray[np.uint8] | None = None,
    isa: str = "",
) -> bool:
    """Do to a row of logits ``[vocab_size]``, in place, all that settings ask for before temperature.

    Args:
        row: Is modified.
        bias_ids: Distinct.
        biases: What is added to the logit of each.
        seen_ids: The distinct tokens of prompt and output: what the repetition penalty is about.
        output_counts: How often each occurs in the output: what the other two penalties are about.
        excluded_ids: Get minus infinity.
        repetition_penalty: Divides logits above zero and multiplies the others; 1 for none.
        presence_penalty: Is subtracted once from what occurs in the output; 0 for none.
        frequency_penalty: Is subtracted each time it occurs; 0 for none.
        allowed: ``[ceil(vocab_size / 8)]``, a bit for each token, the lowest first: those whose bit is 0 get minus
            infinity. None to allow all.
        isa: The instruction set; the best by default.

    Returns:
        Whether the row, as it was given, has no NaN or plus infinity, and a token that is not excluded. If not, all
        that is wrong with it is still there, and some of ``allowed`` may have been applied, nothing else.

    Raises:
        ValueError: Lengths that do not fit.
        IndexError: An id outside the row.
    """

def likeliest(logits: NDArray[np.float32], *, isa: str = "") -> tuple[int, float]:
    """Return the most likely id of a row of logits and its probability at temperature 1.

    Raises:
        ValueError: The largest logit is not finite, or one is NaN.
    """
