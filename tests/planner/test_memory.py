"""Predicted bytes are those that the core counts, and what a process takes in the end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend
from outrider.drafters.compression import DraftOptions
from outrider.models.open import open_model
from outrider.models.resolve import resolve
from outrider.planner.memory import cache_bytes, predict_memory, weight_bytes

FILL = """
import sys
from outrider import LLM, SamplingParams
llm = LLM(sys.argv[1], "ngram", ctx_size=1024, threads=1)
pages = lambda: int(open("/proc/self/statm").read().split()[1])
print(max(pages() for _ in llm.stream("word " * 900, SamplingParams(max_tokens=8), chat=False)))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Models of every weight type, with the head of their own and with that of the embedding."""
    directory = tmp_path_factory.mktemp("models")
    found = {}
    for kind in tiny.WEIGHT_TYPES:
        path = directory / f"{kind}.gguf"
        model = tiny.build_model("qwen2" if kind == "Q4_K" else "llama", tie_word_embeddings=kind == "Q6_K")
        tiny.write_gguf(model, path, kind)
        found[kind] = open_model(path)
    return found


def loaded(files, weights="file", head_tokens=None):
    return NativeBackend.load(
        files.config, files.tensors, max_length=256, threads=1, weights=weights, head_tokens=head_tokens
    )


@pytest.mark.parametrize("kind", tiny.WEIGHT_TYPES)
def test_weights_are_counted_to_the_byte(files, kind):
    one = files[kind]
    for weights in ("file", "int8", "int4"):
        assert weight_bytes(one.tensors, weights, 384) == loaded(one, weights).weight_bytes
    assert weight_bytes(one.tensors, "int4", 100) == loaded(one, "int4", range(100)).weight_bytes


@pytest.mark.parametrize("count", [1, 64, 65, 256])
def test_caches_are_counted_to_the_byte(files, count):
    backend = loaded(files["Q8_0"])
    backend.forward([Rows(backend.open_sequence(), [1] * count)])
    assert cache_bytes(files["Q8_0"].config, count) == backend.cache_bytes


def test_drafts_are_smaller_when_compressed_and_windows_bound_their_caches(files):
    target, draft = files["Q8_0"], files["F16"]
    small = predict_memory(target, [draft], ctx_size=256)
    whole = predict_memory(target, [draft], DraftOptions(weights="file", vocab=None), ctx_size=256)
    assert small.models[1].weights < whole.models[1].weights
    assert small.models[0] == whole.models[0]
    assert small.total == small.process + sum(one.total for one in small.models)
    twice = predict_memory(target, [], ctx_size=256, num_sequences=2)
    assert twice.models[0].cache == 2 * small.models[0].cache


def test_a_process_takes_what_was_predicted():
    path = resolve("smollm2-135m", os.environ)
    predicted = predict_memory(open_model(Path(path)), [], ctx_size=1024).total
    done = subprocess.run([sys.executable, "-c", FILL, str(path)], capture_output=True, text=True, check=True)
    measured = os.sysconf("SC_PAGE_SIZE") * int(done.stdout)
    assert abs(predicted / measured - 1) < 0.1
