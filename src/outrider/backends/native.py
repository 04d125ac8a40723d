"""The native core as a backend."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from outrider import _core
from outrider.backends.base import Rows
from outrider.errors import ContextLengthError, ModelFileError, OutriderError, UsageError
from outrider.models.config import ModelConfig, TensorSource
from outrider.models.mapping import give_back_pages
from outrider.types import Logits

CACHE_CHUNK = 256  # tokens: caches grow by so many (csrc/ops)
WeightFormat = Literal["file", "int8", "int4", "bfloat16"]


class NativeBackend:
    """A :class:`~outrider.backends.base.Backend` that runs decoders on this machine's processors.

    One thread at a time may use it; another that calls meanwhile gets a :class:`UsageError`.
    """

    def __init__(self, model: _core.Model, *, is_compressed: bool = False) -> None:
        """Wrap a finished model; ``is_compressed`` says that it may draft, and never be a target."""
        self._model = model
        self.is_compressed = is_compressed

    @classmethod
    def load(  # noqa: PLR0913  (how it runs is as much the caller's as what runs)
        cls,
        config: ModelConfig,
        tensors: Iterable[TensorSource],
        *,
        max_length: int,
        threads: int | None = None,
        isa: str | None = None,
        weights: WeightFormat = "file",
        head_tokens: Collection[int] | None = None,
    ) -> NativeBackend:
        """Pack a model's tensors for this machine.

        Args:
            config: What the model is.
            tensors: All of its tensors, each once, in any order. Only the embedding's data is kept.
            max_length: The most tokens that one sequence may hold, at most ``config.context_length``.
            threads: How many threads compute, at most ``_core.MAX_THREADS``; by default one for each physical core
                that this process may use.
            isa: One of ``outrider._core.available_isas()``; by default what the environment variable ``OUTRIDER_ISA``
                names, or else the best of them. All give the same bits.
            weights: How matrices are held: as the file has them, without loss, or requantised. ``"int8"`` and
                ``"int4"`` leave alone what the file holds in no more bits. ``"int4"`` makes a model that is good for
                drafting only.
            head_tokens: The tokens that the model can say; the logits of all others are minus infinity. By default
                every token. Good for drafting only, too.

        Raises:
            UsageError: ``max_length``, ``threads``, ``isa``, ``weights`` or ``head_tokens`` is out of range.
            ModelFileError: A tensor is missing, of another shape or size than the config asks for, or unknown.
            OutriderError: The memory is not to be had.
        """
        with _errors_as(UsageError):
            model = _core.Model(
                _described(config),
                threads=min(physical_cores(), _core.MAX_THREADS) if threads is None else threads,
                max_length=max_length,
                isa=isa or "",
            )
            if head_tokens is not None:
                model.cut_head(sorted(set(head_tokens)))
        if weights not in get_args(WeightFormat):
            raise UsageError(f"weights is {weights!r}; use one of {', '.join(get_args(WeightFormat))}")
        embedding = np.empty(0, np.uint8)
        with _errors_as(ModelFileError):
            for tensor in tensors:
                model.add_tensor(
                    role=tensor.role,
                    layer=tensor.layer,
                    type=tensor.type,
                    shape=tensor.shape,
                    data=tensor.data,
                    pack_as=weights,
                )
                give_back_pages(tensor.data)
                embedding = tensor.data if tensor.role == "embedding" else embedding
            model.finish()
            give_back_pages(embedding)  # of which a row is read now and then
        return cls(model, is_compressed=weights == "int4" or head_tokens is not None or config.cache_window > 0)

    @property
    def vocab_size(self) -> int:
        """Width of a row of logits."""
        return self._model.vocab_size

    @property
    def max_length(self) -> int:
        """The most tokens that one sequence's cache may hold."""
        return self._model.max_length

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return self._model.threads

    @property
    def isa(self) -> str:
        """Name of the instruction set in use."""
        return self._model.isa

    @property
    def weight_bytes(self) -> int:
        """Size of the packed weights; a pass over one token reads all of them once."""
        return self._model.weight_bytes

    @property
    def cache_bytes(self) -> int:
        """Size of the memory that the caches hold now."""
        return self._model.cache_bytes

    def bytes_per_token(self) -> int:
        """Return what one token takes in a cache, found by filling the smallest part of one; no other must be open."""
        sequence_id, before = self.open_sequence(), self.cache_bytes
        self.forward([Rows(sequence_id, [0], num_logits=0)])
        size = self.cache_bytes - before
        self.close_sequence(sequence_id)
        return size // CACHE_CHUNK

    def open_sequence(self) -> int:
        """Return the id of a new sequence with an empty cache."""
        with _errors_as(UsageError):
            return self._model.open()

    def close_sequence(self, sequence_id: int) -> None:
        """Free the cache of a sequence; its id is invalid from then on."""
        with _errors_as(UsageError):
            self._model.close(sequence_id)

    def fork(self, sequence_id: int) -> int:
        """Return the id of a new sequence that shares what this one holds, without copying it: see the contract."""
        with _errors_as(UsageError):
            return self._model.fork(sequence_id)

    def length(self, sequence_id: int) -> int:
        """Return how many tokens the cache of a sequence holds, every node of a tree counted."""
        with _errors_as(UsageError):
            return self._model.length(sequence_id)

    def crop(self, sequence_id: int, length: int) -> None:
        """Forget every token at position ``length`` and after: see the contract."""
        with _errors_as(UsageError):
            self._model.crop(sequence_id, length)

    def keep_path(self, sequence_id: int, nodes: Sequence[int]) -> None:
        """Forget the last pass's tree but for one path from its root: see the contract."""
        with _errors_as(UsageError):
            self._model.keep_path(sequence_id, nodes)

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """Run one pass over the rows of all given sequences: see the contract."""
        with _errors_as(UsageError):
            return self._model.forward(
                [rows.sequence_id for rows in batch],
                [rows.token_ids for rows in batch],
                [rows.num_logits for rows in batch],
                [rows.parents for rows in batch],
            )


def _described(config: ModelConfig) -> _core.ModelConfig:
    described = _core.ModelConfig()
    for name, value in asdict(config).items():
        if name != "architecture":
            setattr(described, name, value)
    return described


@contextmanager
def _errors_as(kind: type[OutriderError]) -> Iterator[None]:
    """Give the core's complaints their place in Outrider's tree of errors."""
    try:
        yield
    except _core.ContextOverflow as error:
        raise ContextLengthError(str(error)) from None
    except OutriderError:
        raise
    except MemoryError:
        raise OutriderError(
            "there is not memory enough for the model's weights and caches; end other programs or raise the limit, "
            "or take a smaller model, weights='int8', or fewer and shorter sequences"
        ) from None
    except ValueError as error:
        raise kind(str(error)) from None
    except TypeError:
        raise kind("an argument is not an integer, or is beyond 64 bits; see the types in outrider/_core.pyi") from None


def physical_cores(system: Path = Path("/sys")) -> int:
    """Return how many physical cores this process may use, one at least.

    Two hardware threads of a core share its arithmetic units and its path to memory, so a second one adds nothing.

    Args:
        system: Where Linux shows its devices; elsewhere every processor counts as a core.
    """
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in usable:
        siblings = system / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        cores.add(siblings.read_text().strip() if siblings.exists() else str(cpu))
    return min(len(cores), _cpu_quota(system) or len(cores))


def _cpu_quota(system: Path) -> int | None:
    """Return how many processors' worth of time the container may take, rounded up; ``None`` without a limit."""
    limit = system / "fs/cgroup/cpu.max"
    if not limit.exists():
        return None
    quota, period = limit.read_text().split()
    return None if quota == "max" else max(1, -(-int(quota) // int(period)))
