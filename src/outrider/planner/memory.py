"""How much memory a target and its drafts take, before any of their weights is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from outrider.backends.native import WeightFormat
from outrider.drafters.compression import DraftOptions
from outrider.models.config import ModelConfig, TensorSource
from outrider.models.files import ModelFiles

# How the core holds each type (csrc/matmul/layout.h): inputs of a block, columns of a panel, bytes of a block.
_LAYOUTS = {
    "F32": (1, 32, 128),
    "F16": (1, 32, 64),
    "BF16": (1, 32, 64),
    "Q4_0": (64, 16, 64 + 2 * 256),
    "Q4_1": (64, 16, 128 + 2 * 256),
    "Q5_0": (64, 16, 64 + 2 * 320),
    "Q5_1": (64, 16, 128 + 2 * 320),
    "Q8_0": (64, 16, 64 + 2 * 512),
    "Q4_K": (256, 16, 320 + 8 * 256),
    "Q5_K": (256, 16, 320 + 8 * 320),
    "Q6_K": (256, 16, 320 + 8 * 384),
}
_FLOATS = frozenset({"F32", "F16", "BF16"})
_FOUR_BITS = frozenset({"Q4_0", "Q4_1", "Q4_K"})
_CHUNK, _BLOCK = 256, 64  # positions that a cache grows by, and that attention takes at a time
_PASS_ROWS = 256  # of a pass at most: its buffers are made once
# Measured on CPython 3.11, 64 bits: the interpreter with what Outrider imports; a tokenizer, by its tokens; and what
# allocators keep of the passing needs of loading.
_PROCESS_BYTES = 46 << 20
_TOKEN_BYTES = 600
_LOGITS_ROWS = 16


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Bytes that one model takes.

    Attributes:
        name: Of the model.
        weights: Packed; exact.
        cache: Of all sequences, filled to the last token they may hold; exact.
        buffers: What a pass works in, and the logits of usual rounds.
        tokenizer: The vocabulary, in both directions.
    """

    name: str
    weights: int
    cache: int
    buffers: int
    tokenizer: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.cache + self.buffers + self.tokenizer


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a process takes, at most, with a target and its drafts loaded.

    Attributes:
        process: Without any model.
        models: The target first.
    """

    process: int
    models: tuple[ModelMemory, ...]

    @property
    def total(self) -> int:
        """All of it."""
        return self.process + sum(one.total for one in self.models)


def predict_memory(
    target: ModelFiles,
    drafts: Sequence[ModelFiles],
    draft_options: DraftOptions | None = None,
    *,
    ctx_size: int,
    num_sequences: int = 1,
) -> Memory:
    """Return what will be taken.

    Args:
        target: Opened.
        drafts: Opened; held as ``draft_options`` say, by default compressed.
        draft_options: See ``LLM``.
        ctx_size: Tokens that each sequence may hold.
        num_sequences: How many are open side by side.
    """
    options = draft_options or DraftOptions()
    models = [model_memory(target, "file", ctx_size=ctx_size, num_sequences=num_sequences)]
    for draft in drafts:
        head_tokens = options.head_tokens(draft.tokenizer, draft.config.vocab_size)
        models.append(
            model_memory(
                draft,
                options.weights,
                head_tokens,
                ctx_size=min(ctx_size, draft.config.context_length),
                num_sequences=num_sequences,
                window=options.window,
            )
        )
    return Memory(_PROCESS_BYTES, tuple(models))


def model_memory(  # noqa: PLR0913 - what the core is told
    files: ModelFiles,
    weights: WeightFormat,
    head_tokens: Collection[int] | None = None,
    *,
    ctx_size: int,
    num_sequences: int = 1,
    window: int | None = None,
) -> ModelMemory:
    """Return what one model will take; arguments as for ``NativeBackend.load``."""
    num_head = files.config.vocab_size if head_tokens is None else len(head_tokens)
    held = ctx_size if window is None else min(ctx_size, window + 3 * _CHUNK)
    return ModelMemory(
        files.name,
        weight_bytes(files.tensors, weights, num_head),
        num_sequences * cache_bytes(files.config, held),
        _buffer_bytes(files.config, num_head),
        _TOKEN_BYTES * files.tokenizer.vocab_size,
    )


def weight_bytes(tensors: Sequence[TensorSource], weights: WeightFormat, num_head: int) -> int:
    """Return the size of packed weights.

    Args:
        tensors: As the file has them.
        weights: How they are held.
        num_head: How many tokens the model can say.
    """
    total = 0
    by_role = {tensor.role: tensor for tensor in tensors}
    for tensor in tensors:
        if tensor.role == "embedding":
            continue  # rows of it are read where the file lies
        rows = num_head if tensor.role == "output" else tensor.shape[0]
        total += _tensor_bytes(tensor, weights, rows)
    if "output" not in by_role and "embedding" in by_role:
        total += _tensor_bytes(by_role["embedding"], weights, num_head)
    return total


def _tensor_bytes(tensor: TensorSource, weights: WeightFormat, rows: int) -> int:
    if len(tensor.shape) == 1:
        return 4 * _padded(rows, 16)
    held = {
        "file": tensor.type,
        "bfloat16": "BF16",
        "int8": "Q8_0" if tensor.type in _FLOATS else tensor.type,
        "int4": tensor.type if tensor.type in _FOUR_BITS else "Q4_0",
    }[weights]
    inputs, columns, block_bytes = _LAYOUTS[held]
    return -(-rows // columns) * -(-tensor.shape[1] // inputs) * block_bytes


def cache_bytes(config: ModelConfig, num_tokens: int) -> int:
    """Return the size of the cache of one sequence of so many tokens."""
    block = 2 * (4 * _BLOCK + _BLOCK * (config.head_dim + _padded(config.head_dim, 16)))
    chunk = config.num_layers * config.num_kv_heads * (_CHUNK // _BLOCK) * block
    return -(-num_tokens // _CHUNK) * chunk


def _buffer_bytes(config: ModelConfig, num_head: int) -> int:
    """Return the size of what a pass works in (csrc/model/executor.h)."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    floats = 3 * hidden + 2 * keys + queries + 2 * inner
    activations = (hidden + queries + inner) * (5 + 20 / 32)
    head = num_head if num_head < config.vocab_size else 0
    return int(_PASS_ROWS * (4 * floats + 2 * queries + activations) + 4 * _LOGITS_ROWS * (config.vocab_size + head))


def _padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
