"""Arguments, descriptions, tensors and weights that are wrong: one clear error each, and nothing is changed."""

import gc
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import Shape, build_reference, load, tensors_of

from outrider import _core
from outrider.backends.base import Rows
from outrider.backends.native import NativeBackend, physical_cores
from outrider.errors import ContextLengthError, ModelFileError, UsageError
from outrider.models.config import TensorSource

SHAPE = Shape()
TENSORS = tensors_of(build_reference(SHAPE), SHAPE)
HUGE = 2**31


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("activation", "relu"),
        ("query_scale", 0.0),
        ("query_scale", math.nan),
        ("embedding_scale", -1.0),
        ("embedding_scale", math.inf),
        ("norm_offset", math.nan),
        ("norm_offset", 2.0),
        ("layer_windows", (4,)),
        ("layer_windows", (4, -1)),
        ("layer_windows", (HUGE, 4)),
        ("windowed_rope_inv_freq", (1.0,)),
        ("windowed_rope_inv_freq", (math.nan,) * 8),
        ("rope_style", "spiral"),
        ("rope_inv_freq", ()),
        ("rope_inv_freq", (1.0,) * 9),
        ("rope_inv_freq", (math.nan,)),
        ("rope_inv_freq", (-1.0,)),
        ("norm_eps", math.inf),
        ("norm_eps", -1e-5),
        ("num_kv_heads", 3),
        ("head_dim", 15),
        *(
            (field, value)
            for field in (
                "vocab_size",
                "context_length",
                "hidden_size",
                "intermediate_size",
                "num_layers",
                "num_heads",
                "num_kv_heads",
                "head_dim",
            )
            for value in (0, -1, HUGE, 2**62, 2**64)
        ),
    ],
)
def test_descriptions(field: str, value: Any) -> None:
    with pytest.raises(UsageError) as error:
        NativeBackend.load(replace(SHAPE.config, **{field: value}), TENSORS, max_length=16, threads=1)
    message = str(error.value)
    assert "\n" not in message
    if value != 2**64:  # which does not even reach the core
        assert field in message


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"max_length": 0}, "0"),
        ({"max_length": 1025}, "1025"),
        ({"max_length": -(2**40)}, "max_length"),
        ({"threads": 0}, "0"),
        ({"threads": 257}, "257"),
        ({"isa": "mmx"}, "mmx"),
        ({"weights": "int1"}, "int1"),
    ],
)
def test_settings(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        NativeBackend.load(SHAPE.config, TENSORS, **{"max_length": 16, "threads": 1, **arguments})


def test_the_default_number_of_threads_is_one_that_the_core_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outrider.backends.native.physical_cores", lambda: 300)
    monkeypatch.setattr(_core, "MAX_THREADS", 3)
    assert load(SHAPE, threads=None).threads == 3


@pytest.mark.parametrize("isa", _core.available_isas())
def test_the_environment_chooses_the_instruction_set(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_ISA", isa)
    assert load(SHAPE).isa == isa
    assert load(SHAPE, isa="portable").isa == "portable"  # an argument weighs more


def test_an_environment_that_asks_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_ISA", "mmx")
    with pytest.raises(
        UsageError,
        match=r"OUTRIDER_ISA names instruction set 'mmx', which is not available; this machine runs: portable",
    ):
        load(SHAPE)


# Runs with so many bytes of address space more than it has.
POOR = """
import resource, sys
import numpy as np
from outrider.backends.native import NativeBackend
from outrider.errors import OutriderError
from outrider.models.config import ModelConfig, TensorSource

data = np.zeros(2**28, np.uint8)
matrix = TensorSource(role="ffn_up", layer=0, type="F32", shape=(2**14, 2**12), data=data)
config = ModelConfig("llama", 77, 1024, 2**12, 2**14, 1, 32, 32, 128, 1e-5, 1.0, "half", (1.0,))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27,) * 2)
try:
    NativeBackend.load(config, [matrix], max_length=16, threads=int(sys.argv[1]))
except OutriderError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ("200", r"UsageError num_threads is 200, but the system allows no more than \d+ here \(.*\); use fewer"),
        ("1", "OutriderError there is not memory enough"),
    ],
)
def test_what_the_system_refuses(threads: str, message: str) -> None:
    ran = subprocess.run([sys.executable, "-c", POOR, threads], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.match(message, ran.stdout)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # what is shown here
@pytest.mark.parametrize("threads", [1, 2])
def test_forked_children(threads: int) -> None:
    """A child has the memory but not the threads: it is told so, can let the model go, and can load another."""
    backend = load(SHAPE, threads=threads)
    sequence = backend.open_sequence()
    logits = backend.forward([Rows(sequence, [1, 2])]).copy()
    backend.crop(sequence, 1)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        with suppress(BaseException):
            if threads > 1:
                with pytest.raises(UsageError, match=f"process {os.getppid()}.* load the model after forking"):
                    backend.forward([Rows(sequence, [2])])
                del backend
                gc.collect()
                backend = load(SHAPE, threads=threads)
                backend.forward([Rows(sequence := backend.open_sequence(), [1])])
            np.testing.assert_array_equal(backend.forward([Rows(sequence, [2])]), logits)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(backend.forward([Rows(sequence, [2])]), logits)


def change(of_role: str, of_layer: int | None, /, **fields: Any) -> list[TensorSource]:
    return [replace(t, **fields) if (t.role, t.layer) == (of_role, of_layer) else t for t in TENSORS]


@pytest.mark.parametrize(
    ("tensors", "named"),
    [
        ([t for t in TENSORS if t.role != "embedding"], "embedding"),
        ([t for t in TENSORS if t.role != "output_norm"], "output_norm"),
        ([t for t in TENSORS if (t.role, t.layer) != ("ffn_up", 1)], "ffn_up of layer 1"),
        ([t for t in TENSORS if t.role != "attn_norm"], "attn_norm of layer 0"),
        ([*TENSORS, TENSORS[0]], "embedding is given twice"),
        ([*TENSORS, TENSORS[1]], "given twice"),
        (change("attn_q", 0, layer=2), "layer in 0..1"),
        (change("attn_q", 0, layer=-1), "layer in 0..1"),
        (change("attn_q", 0, layer=None), "layer in 0..1"),
        (change("output", None, layer=0), "belongs to no layer"),
        (change("attn_q", 0, role="attn_w"), "attn_w"),
        (change("attn_q", 0, type="IQ2_XS"), "IQ2_XS"),
        (change("attn_q", 0, type="Q8_0"), "bytes"),
        (change("attn_q", 0, type="Q4_K"), "64"),
        (change("attn_k", 1, shape=(64, 32)), r"\(64, 32\)"),
        (change("attn_k", 1, shape=(32, 64, 1)), r"\(32, 64, 1\)"),
        (change("attn_k", 1, shape=()), r"\(\)"),
        (change("attn_k", 1, shape=(-32, -64)), r"\(-32, -64\)"),
        (change("attn_k", 1, data=np.zeros(8191, np.uint8)), "8191"),
        (change("attn_k", 1, data=np.zeros(0, np.uint8)), "0 bytes"),
        (change("embedding", None, data=np.zeros(77 * 64 * 4 + 1, np.uint8)), "19713"),
        (change("ffn_norm", 0, data=np.zeros(255, np.uint8)), "255"),
    ],
)
def test_tensors(tensors: list[TensorSource], named: str) -> None:
    with pytest.raises(ModelFileError, match=named):
        NativeBackend.load(SHAPE.config, tensors, max_length=16, threads=1)


@pytest.mark.parametrize(
    ("field", "role"), [("qkv_bias", "attn_q_bias"), ("qk_norm", "attn_q_norm"), ("post_norms", "attn_post_norm")]
)
def test_a_model_has_what_its_description_says_and_no_more(field: str, role: str) -> None:
    with pytest.raises(ModelFileError, match=f"{role} of layer 0 is missing"):
        NativeBackend.load(replace(SHAPE.config, **{field: True}), TENSORS, max_length=16, threads=1)
    surplus = TensorSource(role, 1, "F32", (64,), np.zeros(256, np.uint8))
    with pytest.raises(ModelFileError, match=f"{role} of layer 1 has no place in this model"):
        NativeBackend.load(SHAPE.config, [*TENSORS, surplus], max_length=16, threads=1)


def test_a_model_that_is_not_finished() -> None:
    config = _core.ModelConfig()
    for name, value in vars_of(SHAPE).items():
        setattr(config, name, value)
    model = _core.Model(config, threads=1, max_length=16, isa="")
    sequence = model.open()
    with pytest.raises(ValueError, match="not finished"):
        model.forward([sequence], [[1]], [1], [None])


def vars_of(shape: Shape) -> dict[str, Any]:
    config = shape.config
    return {name: getattr(config, name) for name in config.__slots__ if name != "architecture"}


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        (lambda s: [Rows(s, [1, 77])], "77"),
        (lambda s: [Rows(s, [-1])], "-1"),
        (lambda s: [Rows(s, [2**63])], "64 bits"),
        (lambda s: [Rows(s, [1.5])], "integer"),
        (lambda s: [Rows(s, [])], "no tokens"),
        (lambda s: [Rows(s, [1, 2], 3)], "num_logits is 3"),
        (lambda s: [Rows(s, [1, 2], -1)], "num_logits is -1"),
        (lambda s: [Rows(s, [1]), Rows(s, [2])], "given twice"),
        (lambda s: [Rows(s, [1]), Rows(s + 1, [2])], "not open"),
        (lambda s: [Rows(-1, [2])], "sequence -1"),
        (lambda s: [Rows(s, [1] * 12)], "would hold 17"),
        (lambda s: [Rows(s, [1] * 100_000)], "max_length 16"),
        (lambda s: [Rows(s, [1] * 12, 1, [-1] * 12)], "max_length 16"),
        (lambda s: [Rows(s, [1, 2], 1, [-1])], "number of parents is 1"),
        (lambda s: [Rows(s, [1, 2], 1, [])], "number of parents is 0"),
        (lambda s: [Rows(s, [1, 2], 1, [0, 0])], "parent of a node is 0"),
        (lambda s: [Rows(s, [1, 2], 1, [-1, 1])], "parent of a node is 1"),
        (lambda s: [Rows(s, [1, 2, 3], 1, [-1, 2, 1])], "parent of a node is 2"),
        (lambda s: [Rows(s, [1, 2], 1, [-1, -2])], "parent of a node is -2"),
        (lambda s: [Rows(s, [1, 2], 1, [-1, 2**62])], "parent of a node is 4611686018427387904"),
        (lambda s: [Rows(s, [1, 2], 1, [-1, 2**64])], "64 bits"),
    ],
)
def test_passes(batch: Callable[[int], list[Rows]], named: str) -> None:
    backend = load(SHAPE, max_length=16)
    sequence = backend.open_sequence()
    backend.forward([Rows(sequence, [1, 2, 3, 4, 5])])
    with pytest.raises(UsageError, match=named) as error:
        backend.forward(batch(sequence))
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ContextLengthError) == ("max_length" in str(error.value))
    assert backend.length(sequence) == 5
    other = backend.open_sequence()
    expected = backend.forward([Rows(other, [1, 2, 3, 4, 5, 6])]).copy()
    np.testing.assert_array_equal(backend.forward([Rows(sequence, [6])]), expected)


def test_the_last_position_can_be_used() -> None:
    backend = load(SHAPE, max_length=16)
    sequence = backend.open_sequence()
    backend.forward([Rows(sequence, [1] * 16)])
    with pytest.raises(ContextLengthError):
        backend.forward([Rows(sequence, [1])])


@pytest.mark.parametrize("length", [-1, 6, 2**62, 2**64])
def test_crops(length: int) -> None:
    backend = load(SHAPE)
    sequence = backend.open_sequence()
    backend.forward([Rows(sequence, [1, 2, 3, 4, 5])])
    with pytest.raises(UsageError):
        backend.crop(sequence, length)
    assert backend.length(sequence) == 5


@pytest.mark.parametrize("nodes", [[1], [0, 2], [0, 1, 1], [0, 3], [3], [-1], [2**62], [2**64], [0] * 100_000])
def test_paths(nodes: list[int]) -> None:
    backend = load(SHAPE)
    sequence = backend.open_sequence()
    with pytest.raises(UsageError, match="no tree"):
        backend.keep_path(sequence, [])
    backend.forward([Rows(sequence, [1, 2], 0)])
    logits = backend.forward([Rows(sequence, [5, 6, 7], 3, [-1, 0, -1])]).copy()
    with pytest.raises(UsageError):
        backend.keep_path(sequence, nodes)
    assert backend.length(sequence) == 5
    backend.keep_path(sequence, [0])
    np.testing.assert_array_equal(backend.forward([Rows(sequence, [6])]), logits[1:2])


def test_a_tree_must_be_resolved_first() -> None:
    backend = load(SHAPE)
    sequence = backend.open_sequence()
    backend.forward([Rows(sequence, [1, 2], 0)])
    logits = backend.forward([Rows(sequence, [5, 6, 7], 3, [-1, 0, -1])]).copy()
    for refused in (lambda: backend.forward([Rows(sequence, [1])]), lambda: backend.fork(sequence)):
        with pytest.raises(UsageError, match="holds a tree"):
            refused()
    with pytest.raises(UsageError, match="before"):
        backend.crop(sequence, 3)
    backend.crop(sequence, 2)
    np.testing.assert_array_equal(backend.forward([Rows(sequence, [7])]), logits[2:3])


def test_closed_sequences_are_unknown() -> None:
    backend = load(SHAPE)
    sequence = backend.open_sequence()
    backend.close_sequence(sequence)
    for call in (backend.close_sequence, backend.length, backend.fork, lambda s: backend.crop(s, 0)):
        with pytest.raises(UsageError, match=f"sequence {sequence} is not open"):
            call(sequence)
    assert backend.open_sequence() != sequence


def test_a_second_thread_is_turned_away() -> None:
    backend = load(SHAPE, isa="portable")
    sequence = backend.open_sequence()
    worker = threading.Thread(target=backend.forward, args=([Rows(sequence, [1] * 1000, 1000)],))

    def ask_meanwhile() -> None:
        while worker.is_alive():
            time.sleep(0.005)
            backend.length(sequence)

    worker.start()
    with pytest.raises(UsageError, match="another thread"):
        ask_meanwhile()
    worker.join()
    assert backend.length(sequence) == 1000


def test_logits_outlive_the_backend() -> None:
    backend = load(SHAPE)
    sequence = backend.open_sequence()
    first = backend.forward([Rows(sequence, [1])])
    copy = first.copy()
    backend.forward([Rows(sequence, [2] * 100, 100)])  # needs more memory than the first
    np.testing.assert_array_equal(first, copy)
    del backend
    gc.collect()
    np.testing.assert_array_equal(first, copy)


def poisoned(role: str, value: float, row: int | None = None) -> NativeBackend:
    """Load the tiny model with a row of a tensor of layer 0, or all of it, set to ``value``."""

    def poison(tensor: TensorSource) -> TensorSource:
        values = tensor.data.view(np.float32).copy().reshape(tensor.shape)
        values[slice(None) if row is None else row] = value
        return replace(tensor, data=values.reshape(-1).view(np.uint8))

    tensors = [poison(t) if t.role == role and t.layer in (0, None) else t for t in TENSORS]
    return NativeBackend.load(SHAPE.config, tensors, max_length=512, threads=2)


@pytest.mark.parametrize("role", ["attn_norm", "attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_down", "output_norm"])
@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_weights_that_overflow_show_in_the_logits(role: str, value: float) -> None:
    backend = poisoned(role, value)
    sequence = backend.open_sequence()
    for count in (1, 70, 300):
        assert not np.isfinite(backend.forward([Rows(sequence, [3] * count, count)])).any()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_one_rows_nan_stays_its_own(value: float) -> None:
    backend, sound = poisoned("embedding", value, row=7), load(SHAPE)
    healthy, sick, reference = backend.open_sequence(), backend.open_sequence(), sound.open_sequence()
    expected = sound.forward([Rows(reference, [1, 2, 3, 4, 5], 5)])
    logits = backend.forward([Rows(sick, [1, 2, 7, 4], 4), Rows(healthy, [1, 2, 3, 4, 5], 5)])
    np.testing.assert_array_equal(logits[[0, 1, 4, 5, 6, 7, 8]], expected[[0, 1, 0, 1, 2, 3, 4]])
    assert np.isnan(logits[2:4]).all()
    backend.crop(sick, 2)
    np.testing.assert_array_equal(backend.forward([Rows(sick, [3])]), expected[2:3])


def topology(system: Path, siblings: dict[int, str]) -> None:
    for cpu, text in siblings.items():
        folder = system / f"devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(text + "\n")


def test_hardware_threads_of_a_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2, 3, 5}, raising=False)
    assert physical_cores(tmp_path) == 5  # a system that says nothing of its cores
    topology(tmp_path, {0: "0,4", 1: "1,5", 2: "2-3", 3: "2-3", 5: "1,5"})
    assert physical_cores(tmp_path) == 3
    (tmp_path / "fs/cgroup").mkdir(parents=True)
    limit = tmp_path / "fs/cgroup/cpu.max"
    for text, cores in (("max 100000", 3), ("150000 100000", 2), ("1000 100000", 1), ("900000 100000", 3)):
        limit.write_text(text)
        assert physical_cores(tmp_path) == cores
