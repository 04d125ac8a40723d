"""Models made for drafting only: a cut head says the same of what it keeps, and its law is one over those tokens."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tiny import reference_logits as reference
from tiny_models import Shape, build_reference, load, tensors_of

from outrider import _core
from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend
from outrider.drafters.base import DraftRequest
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.llm import LLM
from outrider.engine.loading import Model
from outrider.errors import UsageError
from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params
from outrider.verification import CoinSource, Purpose

UNTIED, TIED = Shape(), Shape(architecture="qwen2", tied=True)
TOKENS = [5, 3, 76, 0, 12, 40, 41]
KEPT = [0, 3, 4, 17, 30, 31, 32, 33, 48, 75]


def cut(shape, head_tokens, weight_type="F32", **options):
    tensors = tensors_of(build_reference(shape), shape, weight_type)
    settings = {"max_length": 1024, "threads": 1, **options}
    return NativeBackend.load(shape.config, tensors, head_tokens=head_tokens, **settings)


def logits_of(backend, num_logits=7):
    return backend.forward([Rows(backend.open_sequence(), TOKENS, num_logits)]).copy()


@pytest.mark.parametrize("shape", [UNTIED, TIED], ids=["untied", "tied"])
@pytest.mark.parametrize("kept", [KEPT, [76], range(77)], ids=["some", "one", "all"])
@pytest.mark.parametrize(("isa", "threads"), [(isa, 1 + i) for i, isa in enumerate(_core.available_isas())])
def test_what_is_kept_has_the_same_bits_and_the_rest_is_impossible(shape, kept, isa, threads):
    whole = logits_of(load(shape))
    found = logits_of(cut(shape, kept, isa=isa, threads=threads))
    others = np.setdiff1d(np.arange(77), kept)
    np.testing.assert_array_equal(found[:, kept], whole[:, kept])
    assert (found[:, others] == -np.inf).all()


def test_a_quantised_head_is_cut_by_rows():
    shape = Shape(hidden_size=256, num_heads=16, intermediate_size=256)
    whole, found = (logits_of(cut(shape, kept, "Q4_K_M")) for kept in (None, KEPT))
    np.testing.assert_array_equal(found[:, KEPT], whole[:, KEPT])


def test_passes_of_other_sizes_leave_nothing_behind():
    backend = cut(UNTIED, KEPT, threads=2)
    rows = [logits_of(backend, count) for count in (1, 7, 2)]
    np.testing.assert_array_equal(rows[0], rows[1][-1:])
    np.testing.assert_array_equal(rows[2], rows[1][-2:])


def test_a_smaller_head_is_smaller():
    assert cut(TIED, KEPT).weight_bytes < load(TIED).weight_bytes


@pytest.mark.parametrize(
    ("head_tokens", "named"),
    [
        ([], "no tokens"),
        ([77], "token id is 77"),
        ([-1, 3], "token id is -1"),
        ([1.5], "integer"),
        ([2**63], "64 bits"),
    ],
)
def test_heads_that_cannot_be(head_tokens, named):
    with pytest.raises(UsageError, match=named):
        cut(UNTIED, head_tokens)


def test_a_head_is_cut_once_in_order_and_in_time():
    config = _core.ModelConfig()
    for name in set(UNTIED.config.__slots__) - {"architecture"}:
        setattr(config, name, getattr(UNTIED.config, name))
    model = _core.Model(config, threads=1, max_length=16, isa="")
    for token_ids, named in (([3, 2], "follows 3"), ([2, 2], "follows 2")):
        with pytest.raises(ValueError, match=named):
            model.cut_head(token_ids)
    model.cut_head([2, 3])
    with pytest.raises(ValueError, match="once"):
        model.cut_head([2, 3])


def test_four_bits_are_close_and_small():
    """Root mean square error against the logits' standard deviation, of layers too narrow to average it away."""
    four, eight = load(UNTIED, weights="int4"), load(UNTIED, weights="int8")
    expected = reference(build_reference(UNTIED), TOKENS)
    error = logits_of(four) - expected
    assert np.sqrt(np.mean(error**2)) < 0.4 * expected.std()
    assert four.weight_bytes < 0.6 * eight.weight_bytes


@pytest.mark.parametrize(
    ("weight_type", "weights"),
    [("Q4_K", "int4"), *((kind, "int8") for kind in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q4_K_M"))],
)
def test_what_a_file_holds_in_no_more_bits_stays_as_it_is(weight_type, weights):
    shape = Shape(hidden_size=256, num_heads=16, intermediate_size=256)
    exact, held = (logits_of(load(shape, weight_type=weight_type, weights=way)) for way in ("file", weights))
    np.testing.assert_array_equal(exact, held)


def draft_of(backend, params):
    vocabulary = Vocabulary(SimpleNamespace(eos_ids=()), 77)
    shaper = LawShaper(compile_params(params, vocabulary), TOKENS)
    drafter = DraftModelDrafter(backend, vocab_size=77, name="draft")
    coins = CoinSource(3).at(len(TOKENS), Purpose.DRAFT)
    return drafter.propose([DraftRequest(0, TOKENS, 4, shaper, coins)])[0]


def error_of_the_law(draft, law_of):
    """Return how far the draft's claims are from a law made of the whole model's logits before each of its tokens."""
    whole = load(UNTIED)
    errors = []
    for row, token_id in enumerate(draft.token_ids):
        context = [*TOKENS, *draft.token_ids[:row]]
        logits = whole.forward([Rows(whole.open_sequence(), context)])[0].astype(float)
        assert token_id in KEPT
        errors.append(np.abs(np.asarray(draft.probs[row]) - law_of(logits)).max())
    return max(errors)


def softmax_over_the_kept(logits):
    weights = np.zeros(77)
    weights[KEPT] = np.exp(logits[KEPT] - logits[KEPT].max())
    return weights / weights.sum()


def unrenormalised(logits):
    probs = np.exp(logits - logits.max())
    probs /= probs.sum()
    probs[np.setdiff1d(np.arange(77), KEPT)] = 0
    return probs


def test_the_law_of_a_draft_is_a_softmax_over_the_tokens_kept():
    draft = draft_of(cut(UNTIED, KEPT), SamplingParams(temperature=1.0))
    np.testing.assert_allclose(np.asarray(draft.probs).sum(axis=1), 1.0)
    assert not np.asarray(draft.probs)[:, np.setdiff1d(np.arange(77), KEPT)].any()
    assert error_of_the_law(draft, softmax_over_the_kept) < 1e-6
    assert error_of_the_law(draft, unrenormalised) > 1e-2  # the wrong variant is seen


def test_a_greedy_draft_says_the_likeliest_token_kept():
    draft = draft_of(cut(UNTIED, KEPT), SamplingParams())
    logits = logits_of(load(UNTIED), 1)[0]
    assert draft.token_ids[0] == KEPT[int(np.argmax(logits[KEPT]))]


def test_a_compressed_model_is_never_a_target():
    tokenizer = SimpleNamespace(num_tokens=77, eos_ids=frozenset())
    for backend in (cut(UNTIED, KEPT), load(UNTIED, weights="int4")):
        with pytest.raises(UsageError, match="no longer exact"):
            LLM(Model("small", backend, tokenizer, None, 1024))


LONG = np.random.default_rng(2).integers(0, 77, 1500).tolist()
WINDOW = 200


def windowed(window, **options):
    tensors = tensors_of(build_reference(UNTIED), UNTIED)
    config = replace(UNTIED.config, context_length=2048, cache_window=window)
    return NativeBackend.load(config, tensors, **{"max_length": 2048, "threads": 1, **options})


def feed(backend, sequence, token_ids, step=100):
    rows = [
        backend.forward([Rows(sequence, token_ids[i : i + step], len(token_ids[i : i + step]))]).copy()
        for i in range(0, len(token_ids), step)
    ]
    return np.concatenate(rows)


def test_a_cache_window_sees_the_first_positions_and_the_last_ones():
    """As long as both cover everything it is the whole model; later it is not, and one layer sees exactly so much."""
    whole, part = (feed(backend, backend.open_sequence(), LONG[:400]) for backend in (windowed(0), windowed(WINDOW)))
    np.testing.assert_array_equal(whole[:WINDOW], part[:WINDOW])
    np.testing.assert_array_equal(whole[: WINDOW + 64], part[: WINDOW + 64])
    assert (whole[WINDOW + 65 :] != part[WINDOW + 65 :]).any(axis=1).all()


def test_what_lies_between_has_no_influence():
    backend = windowed(WINDOW)
    one, other, third = (backend.open_sequence() for _ in range(3))
    # Two layers look back twice the window from the last position, so this is beyond both.
    changed = [*LONG[:70], *LONG[700:1100], *LONG[470:]]
    rows = [feed(backend, one, LONG)[-600:], feed(backend, other, changed)[-600:]]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert (feed(backend, third, [*LONG[:3], 5, *LONG[4:]])[-1] != rows[0][-1]).any()


def test_a_windowed_cache_is_bounded_and_survives_crops():
    backend = windowed(WINDOW)
    sequence = backend.open_sequence()
    expected = feed(backend, sequence, LONG)
    bound = backend.cache_bytes
    short = windowed(0)
    feed(short, short.open_sequence(), LONG)
    assert bound <= 5 / 6 * short.cache_bytes
    for length in (1499, 1400, 1300):
        backend.crop(sequence, length)
        assert backend.length(sequence) == length
        found = feed(backend, sequence, LONG[length:])
        np.testing.assert_array_equal(found, expected[length:])
    with pytest.raises(UsageError, match="forgotten"):
        backend.crop(sequence, 700)
    assert backend.length(sequence) == len(LONG)
    backend.crop(sequence, 0)
    np.testing.assert_array_equal(feed(backend, sequence, LONG), expected)


def test_a_windowed_pass_depends_on_no_chunks_and_no_instruction_set():
    token_ids = LONG[:400]
    backend = windowed(128)
    expected = feed(backend, backend.open_sequence(), token_ids)
    for isa in _core.available_isas():
        for step in (1, 256):
            other = windowed(128, isa=isa, threads=2)
            np.testing.assert_array_equal(feed(other, other.open_sequence(), token_ids, step), expected)


@pytest.mark.parametrize("window", [-1, 1, 127, 2**24 + 1])
def test_cache_windows_that_cannot_be(window):
    with pytest.raises(UsageError, match="cache_window"):
        windowed(window)
