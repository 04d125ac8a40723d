"""The row-independence rule and the exactness of crop, with ``==``.

A row's logits are compared with those of plain decoding, one token a pass on one thread with the portable kernels:
whatever else is in the pass, however the tokens were cut into passes, on any number of threads and instruction set.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tiny_models import Shape, load

from outrider import _core
from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend, WeightFormat

SHAPES = (
    Shape(),
    Shape(architecture="qwen2", tied=True, hidden_size=56, num_heads=7, num_kv_heads=1, head_dim=8, num_layers=1),
    Shape(interleaved=True, num_heads=4, num_kv_heads=4, hidden_size=72, head_dim=18, attention_bias=True),
    Shape(architecture="qwen3", hidden_size=48, num_heads=3, num_kv_heads=1, head_dim=20),
    Shape(architecture="gemma3", tied=True, num_layers=3, head_dim=24, window=50),
)
STORES: tuple[tuple[str, WeightFormat], ...] = (("F32", "file"), ("BF16", "file"), ("F32", "int8"))
# Blocks of 256 need wider layers.
WIDE = Shape(hidden_size=256, intermediate_size=512, head_dim=64, num_layers=2, tied=True)
FILE_STORES: tuple[tuple[str, WeightFormat], ...] = (
    ("Q4_K_M", "file"),
    ("Q4_1", "file"),
    ("Q5_0", "file"),
    ("Q8_0", "file"),
    ("BF16", "int8"),
)
MODELS = [(s, store) for s in SHAPES for store in STORES] + [(WIDE, store) for store in FILE_STORES]
LENGTH = 300  # crosses blocks of 64 positions and a chunk of 256
NUM_STREAMS = 3


def stream(index: int) -> list[int]:
    return np.random.default_rng(index).integers(0, 77, LENGTH).tolist()


@cache
def backend_for(shape: Shape, store: tuple[str, WeightFormat], isa: str, threads: int) -> NativeBackend:
    return load(shape, weight_type=store[0], weights=store[1], isa=isa, threads=threads)


@cache
def plain_logits(shape: Shape, store: tuple[str, WeightFormat], index: int) -> NDArray[np.float32]:
    backend = backend_for(shape, store, "portable", 1)
    sequence = backend.open_sequence()
    rows = [backend.forward([Rows(sequence, [token])])[0].copy() for token in stream(index)]
    backend.close_sequence(sequence)
    return np.stack(rows)


# What happens to one stream in a pass: first it is cropped to this share of what it holds, then so many tokens follow.
turn = st.tuples(
    st.one_of(st.just(1.0), st.floats(0, 1)),
    st.one_of(st.integers(1, 16), st.integers(17, 130)),
    st.integers(0, 130),
)
passes = st.lists(st.dictionaries(st.integers(0, NUM_STREAMS - 1), turn, min_size=1), min_size=1, max_size=6)


@settings(max_examples=150)
@given(
    model=st.sampled_from(MODELS),
    isa=st.sampled_from(_core.available_isas()),
    threads=st.integers(1, 4),
    script=passes,
)
def test_any_mix_of_passes_gives_the_bits_of_plain_decoding(
    model: tuple[Shape, tuple[str, WeightFormat]],
    isa: str,
    threads: int,
    script: list[dict[int, tuple[float, int, int]]],
) -> None:
    shape, store = model
    backend = backend_for(shape, store, isa, threads)
    sequences = [backend.open_sequence() for _ in range(NUM_STREAMS)]
    for turns in script:
        batch, expected = [], [np.empty((0, shape.vocab_size), np.float32)]
        for index, (kept, count, most_logits) in turns.items():
            start = round(kept * backend.length(sequences[index]))
            backend.crop(sequences[index], start)
            tokens = stream(index)[start : start + count]
            if not tokens:
                continue
            num_logits = min(most_logits, len(tokens))
            batch.append(Rows(sequences[index], tokens, num_logits))
            end = start + len(tokens)
            expected.append(plain_logits(shape, store, index)[end - num_logits : end])
        np.testing.assert_array_equal(backend.forward(batch), np.concatenate(expected))
    for sequence in sequences:
        backend.close_sequence(sequence)


@pytest.mark.parametrize("isa", _core.available_isas())
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_number_of_rows(isa: str, threads: int) -> None:
    """Kernels work on some rows together, and with matrix tiles fewer than four take another way."""
    for shape, store in MODELS[:3] + MODELS[-len(FILE_STORES) :]:
        backend = backend_for(shape, store, isa, threads)
        plain = plain_logits(shape, store, 0)
        assert np.isfinite(plain).all()
        sequence = backend.open_sequence()
        backend.forward([Rows(sequence, stream(0)[:100])])
        for count in range(1, 17):
            logits = backend.forward([Rows(sequence, stream(0)[100 : 100 + count], count)])
            np.testing.assert_array_equal(logits, plain[100 : 100 + count])
            backend.crop(sequence, 100)
        backend.close_sequence(sequence)


def test_a_pass_larger_than_the_executors_buffers() -> None:
    for store in STORES:
        backend = backend_for(SHAPES[0], store, "", 2)
        sequences = [backend.open_sequence() for _ in range(NUM_STREAMS)]
        batch = [Rows(sequence, stream(i), LENGTH - 7 * i) for i, sequence in enumerate(sequences)]
        expected = [plain_logits(SHAPES[0], store, i)[7 * i :] for i in range(NUM_STREAMS)]
        np.testing.assert_array_equal(backend.forward(batch), np.concatenate(expected))
        for sequence in sequences:
            backend.close_sequence(sequence)


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[-1]], ids=["whole context", "window of 50"])
@pytest.mark.parametrize("kept", [0, 1, 49, 50, 51, 63, 64, 65, 255, 256, 257, 299])
def test_after_a_crop_other_tokens_are_as_in_a_fresh_sequence(shape: Shape, kept: int) -> None:
    backend = backend_for(shape, STORES[0], "", 1)
    cropped, fresh = backend.open_sequence(), backend.open_sequence()
    other = stream(1)[:40]
    backend.forward([Rows(cropped, stream(0))])
    backend.crop(cropped, kept)
    assert backend.length(cropped) == kept
    logits = backend.forward([Rows(cropped, other, 40)]).copy()
    np.testing.assert_array_equal(logits, backend.forward([Rows(fresh, stream(0)[:kept] + other, 40)]))
    assert not np.array_equal(logits, plain_logits(shape, STORES[0], 0)[:40])
    backend.close_sequence(cropped)
    backend.close_sequence(fresh)


def test_crop_gives_memory_back_and_close_all_of_it() -> None:
    backend = load(SHAPES[0])
    sequence = backend.open_sequence()
    assert backend.cache_bytes == 0
    backend.forward([Rows(sequence, stream(0) * 3)])  # four chunks
    full = backend.cache_bytes
    backend.crop(sequence, 0)
    assert 0 < backend.cache_bytes == full // 4
    backend.close_sequence(sequence)
    assert backend.cache_bytes == 0


@pytest.mark.parametrize("length", [0, 1, 64, 255, 256, 257])
def test_forks_share_what_is_cached_and_go_their_own_ways(length: int) -> None:
    backend = load(SHAPES[0])
    parent = backend.open_sequence()
    if length:
        backend.forward([Rows(parent, stream(0)[:length])])
    before = backend.cache_bytes
    forks = [backend.fork(parent) for _ in range(3)]
    assert backend.cache_bytes == before
    tails = [stream(index)[:30] for index in range(3)]
    logits = backend.forward([Rows(fork, tail, 30) for fork, tail in zip(forks, tails, strict=True)]).copy()
    own = backend.forward([Rows(parent, stream(0)[length : length + 30], 30)]).copy()
    np.testing.assert_array_equal(own, plain_logits(SHAPES[0], STORES[0], 0)[length : length + 30])
    for index, tail in enumerate(tails):
        fresh = backend.open_sequence()
        expected = backend.forward([Rows(fresh, stream(0)[:length] + tail, 30)])
        np.testing.assert_array_equal(logits[30 * index : 30 * (index + 1)], expected)
        backend.close_sequence(fresh)
    backend.close_sequence(parent)
    backend.crop(forks[0], length // 2)
    backend.close_sequence(forks[0])
    for fork in forks[1:]:
        backend.close_sequence(fork)
    assert backend.cache_bytes == 0


def test_passes_without_logits_only_fill_the_cache() -> None:
    backend = load(SHAPES[0], threads=2)
    sequence = backend.open_sequence()
    assert backend.forward([Rows(sequence, stream(0)[:50], 0)]).shape == (0, 77)
    assert backend.forward([]).shape == (0, 77)
    logits = backend.forward([Rows(sequence, stream(0)[50:51])])
    np.testing.assert_array_equal(logits, plain_logits(SHAPES[0], STORES[0], 0)[50:51])
