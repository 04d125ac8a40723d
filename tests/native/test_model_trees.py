"""Trees of tokens, kept paths and attention windows, with ``==`` against plain decoding by the portable kernels."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from test_model_rows import SHAPES, STORES, WIDE, backend_for, stream
from tiny_models import Shape, load

from outrider import _core
from outrider.backends.base import Rows

WINDOWS = (
    replace(SHAPES[0], window=1),
    replace(SHAPES[0], window=70, num_layers=3),
    replace(SHAPES[2], window=64),
    replace(SHAPES[2], window=63, num_layers=4),
    replace(SHAPES[0], architecture="gemma3", window=5, num_layers=3),
)
MODELS = [(SHAPES[0], STORES[0]), (SHAPES[1], STORES[2]), (WIDE, ("Q4_K_M", "file"))]
MODELS += [(shape, STORES[0]) for shape in WINDOWS]
CONTEXTS = (0, 1, 30, 60, 63, 64, 65, 127, 250, 255, 256, 257, 290)  # near the edges of blocks and chunks


@cache
def plain_context(shape: Shape, store: tuple[str, str], context: int) -> int:
    """Return a sequence of the portable backend that holds so many tokens of the stream, fed one by one."""
    backend = backend_for(shape, store, "portable", 1)
    if context == 0:
        return backend.open_sequence()
    sequence = backend.fork(plain_context(shape, store, CONTEXTS[CONTEXTS.index(context) - 1]))
    for token in stream(0)[backend.length(sequence) : context]:
        backend.forward([Rows(sequence, [token], 0)])
    return sequence


def plain_logits(
    shape: Shape, store: tuple[str, str], context: int, tokens: list[int], parents: list[int]
) -> NDArray[np.float32]:
    """Return the logits of every node, each fed by itself after all that leads to it."""
    backend = backend_for(shape, store, "portable", 1)
    root = plain_context(shape, store, context)
    nodes: list[int] = []
    logits = []
    for token, parent in zip(tokens, parents, strict=True):
        nodes.append(backend.fork(root if parent < 0 else nodes[parent]))
        logits.append(backend.forward([Rows(nodes[-1], [token])])[0].copy())
    for node in nodes:
        backend.close_sequence(node)
    return np.stack(logits)


@st.composite
def tokens_of_a_pass(draw: st.DrawFn) -> tuple[int, list[int], list[int] | None]:
    """Draw a context, tokens, and their parents if they are a tree."""
    count = draw(st.integers(1, 24))
    tokens = np.random.default_rng(draw(st.integers(0, 999))).integers(0, 77, count).tolist()
    lead = draw(st.integers(0, count))
    back = draw(st.lists(st.integers(0, draw(st.sampled_from([1, 3, 24]))), min_size=count, max_size=count))
    parents = [i - 1 if i < lead else max(-1, i - 1 - back[i]) for i in range(count)]
    return draw(st.sampled_from(CONTEXTS)), tokens, draw(st.sampled_from([parents, parents, None]))


@settings(max_examples=60)
@given(
    model=st.sampled_from(MODELS),
    isa=st.sampled_from(_core.available_isas()),
    threads=st.integers(1, 4),
    batch=st.lists(tokens_of_a_pass(), min_size=1, max_size=3),
    choice=st.randoms(use_true_random=False),
)
def test_trees_and_chains_together(model, isa, threads, batch, choice) -> None:  # type: ignore[no-untyped-def]
    backend = backend_for(*model, isa, threads)
    rows, expected = [], []
    for context, tokens, parents in batch:
        sequence = backend.open_sequence()
        if context:
            backend.forward([Rows(sequence, stream(0)[:context], 0)])
        num_logits = choice.randint(0, len(tokens))
        rows.append(Rows(sequence, tokens, num_logits, parents))
        chain = list(range(-1, len(tokens) - 1))
        expected.append(plain_logits(*model, context, tokens, parents or chain)[len(tokens) - num_logits :])
    np.testing.assert_array_equal(backend.forward(rows), np.concatenate(expected))

    following, expected = [], []
    for (context, tokens, parents), fed in zip(batch, rows, strict=True):
        path = list(range(len(tokens)))
        if parents is not None:
            path = path_to(choice.randint(-1, len(tokens) - 1), parents)
            backend.keep_path(fed.sequence_id, path)
        assert backend.length(fed.sequence_id) == context + len(path)
        kept = [*(tokens[node] for node in path), 7, 8, 9]
        following.append(Rows(fed.sequence_id, [7, 8, 9], 3))
        expected.append(plain_logits(*model, context, kept, list(range(-1, len(kept) - 1)))[-3:])
    np.testing.assert_array_equal(backend.forward(following), np.concatenate(expected))
    for fed in rows:
        backend.close_sequence(fed.sequence_id)


def path_to(node: int, parents: list[int]) -> list[int]:
    return [] if node < 0 else [*path_to(parents[node], parents), node]


def test_siblings_do_not_see_each_other() -> None:
    """Taken as a chain, the same tokens have other logits: the tests above would notice."""
    backend = load(SHAPES[0])
    tree, chain = backend.open_sequence(), backend.open_sequence()
    logits = backend.forward([Rows(tree, [5, 6, 7], 3, [-1, -1, 0]), Rows(chain, [5, 6, 7], 3)])
    np.testing.assert_array_equal(logits[0], logits[3])
    assert (logits[1:3] != logits[4:6]).any(axis=1).all()


def test_a_tree_larger_than_the_executors_buffers() -> None:
    """Two branches of 200 nodes each, in turns, cross blocks, a chunk and the pieces of a pass."""
    backend = backend_for(SHAPES[0], STORES[0], "", 2)
    sequence = backend.open_sequence()
    branches = [stream(0)[:200], stream(1)[:200]]
    tokens = [token for pair in zip(*branches, strict=True) for token in pair]
    logits = backend.forward([Rows(sequence, tokens, 400, [max(-1, i - 2) for i in range(400)])]).copy()
    for index, branch in enumerate(branches):
        fresh = backend.open_sequence()
        np.testing.assert_array_equal(logits[index::2], backend.forward([Rows(fresh, branch, 200)]))
        backend.close_sequence(fresh)
    backend.keep_path(sequence, list(range(1, 400, 2)))
    backend.close_sequence(sequence)


def test_a_path_longer_than_a_chunk_of_the_cache_is_kept() -> None:
    backend = backend_for(SHAPES[0], STORES[0], "", 2)
    tree, chain = backend.open_sequence(), backend.open_sequence()
    tokens = [*stream(0), *stream(1), *stream(2)]
    backend.forward([Rows(tree, tokens, 0, list(range(-1, len(tokens) - 1)))])
    backend.keep_path(tree, list(range(len(tokens))))
    backend.forward([Rows(chain, tokens, 0)])
    np.testing.assert_array_equal(*(backend.forward([Rows(sequence, [5])]).copy() for sequence in (tree, chain)))
    backend.close_sequence(tree)
    backend.close_sequence(chain)


@pytest.mark.parametrize("window", [1, 5, 64, 100])
def test_a_window_is_all_that_one_layer_sees(window: int) -> None:
    """Rotation is relative, so the last tokens alone give nearly the logits of all of them through a window."""
    shape = replace(SHAPES[0], num_layers=1)
    narrow, whole = load(replace(shape, window=window)), load(shape)
    one, other = narrow.open_sequence(), whole.open_sequence()
    logits = narrow.forward([Rows(one, stream(0), 300)]).copy()
    np.testing.assert_array_equal(logits[:window], whole.forward([Rows(other, stream(0)[:window], window)]))
    for end in (window + 1, 129, 300):
        whole.crop(other, 0)
        np.testing.assert_allclose(
            logits[end - 1], whole.forward([Rows(other, stream(0)[end - window : end])])[0], atol=2e-2
        )
    assert not np.allclose(logits[299], whole.forward([Rows(other, [5])])[0], atol=2e-2)


def test_a_crop_past_the_windows_edge_is_exact() -> None:
    shape = replace(SHAPES[0], window=8)
    backend = load(shape)
    sequence, fresh = backend.open_sequence(), backend.open_sequence()
    backend.forward([Rows(sequence, stream(0))])
    backend.crop(sequence, 100)
    logits = backend.forward([Rows(sequence, stream(1)[:20], 20)]).copy()
    np.testing.assert_array_equal(logits, backend.forward([Rows(fresh, stream(0)[:100] + stream(1)[:20], 20)]))
