"""Sampling parameters refuse what they cannot mean, with the field, the value and the limit."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest

from outrider.errors import UsageError
from outrider.sampling import SamplingParams

NAN = float("nan")


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        *[("temperature", value) for value in (-0.1, 100.1, NAN, float("inf"))],
        *[("top_k", value) for value in (0, -1)],
        *[("top_p", value) for value in (0.0, -0.1, 1.1, NAN)],
        *[("min_p", value) for value in (-0.1, 1.1, NAN)],
        *[("seed", value) for value in (-1, 2**64)],
        *[("max_tokens", value) for value in (0, -5)],
        *[("temperature", value) for value in (None, "1", True)],
        *[("top_k", value) for value in (1.5, "2", True)],
        *[("typical_p", value) for value in (0.0, -0.1, 1.1, NAN)],
        *[("repetition_penalty", value) for value in (0.0, -1.0, 101, NAN, float("inf"))],
        *[(f"{kind}_penalty", value) for kind in ("presence", "frequency") for value in (-2.1, 2.1, NAN, "0")],
        *[("logit_bias", value) for value in ({-1: 0.0}, {"1": 0.0}, {True: 1.0}, [1], None, "")],
        *[("bad_words", value) for value in (("",), "word", (1,), None, ("\ud800",))],
        *[("allowed_token_ids", value) for value in ((), (-1,), (1.0,), "12", (True,), 3)],
        *[("stop_token_ids", value) for value in ((-1,), ("1",), None, 3)],
        *[("min_tokens", value) for value in (-1, 0.5, 257, None)],
        *[("n", value) for value in (0, 129, None, 1.0)],
        *[(name, value) for name in ("logprobs", "prompt_logprobs") for value in (-1, 21, 1.5)],
        *[("ignore_eos", value) for value in (1, None, "yes")],
        ("max_tokens", None),
        ("stop", "end"),
        ("stop", ("",)),
        ("stop", ("end", "")),
    ],
)
def test_out_of_range_is_refused_by_name(field, bad):
    with pytest.raises(UsageError, match=f"{field} is .*; it must be"):
        SamplingParams(**{field: bad})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.0, "top_k": 1, "top_p": 1.0, "min_p": 0.0, "seed": 0, "max_tokens": 1, "stop": ("end",)},
        {"temperature": 100.0, "min_p": 1.0, "seed": 2**64 - 1},
        {"typical_p": 1.0, "repetition_penalty": 0.01, "presence_penalty": -2, "frequency_penalty": 2.0},
        {"repetition_penalty": 100, "logit_bias": {0: -100, 5: 100.0}, "bad_words": ["a"], "stop": ["b"]},
        {"allowed_token_ids": [0], "stop_token_ids": [0, 1], "min_tokens": 256, "n": 128},
        {"logprobs": 0, "prompt_logprobs": 20, "ignore_eos": True, "n": 1, "min_tokens": 0},
        {"top_k": np.int64(3), "temperature": np.float32(0.5), "allowed_token_ids": tuple(np.arange(2))},
    ],
)
def test_ends_of_the_ranges_are_accepted(fields):
    params = SamplingParams(**fields)
    assert params.is_greedy == (params.temperature == 0)


@pytest.mark.parametrize("bias", [100.5, -101, NAN, float("inf"), "1", None])
def test_a_bias_out_of_range_is_refused_with_its_token(bias):
    with pytest.raises(UsageError, match=r"logit_bias of token 7 is .*; it must be from -100 to 100"):
        SamplingParams(logit_bias={7: bias})


def test_unknown_fields_are_refused_by_name():
    with pytest.raises(TypeError, match="best_of"):
        SamplingParams(best_of=2)


def test_params_can_be_told_apart_and_put_into_sets():
    one, other = SamplingParams(logit_bias={1: 2.0}), SamplingParams(logit_bias={1: 3.0})
    assert one != other
    assert len({one, other, SamplingParams(logit_bias={1: 2.0})}) == 2


def test_nothing_changes_params_once_they_are_made():
    lists = {name: [1, 2] for name in ("stop_token_ids", "allowed_token_ids")} | {"stop": ["a"], "bad_words": ["b"]}
    mappings = {"logit_bias": {1: 2.0}, "response_format": {"type": "regex", "regex": "a"}}
    params, same = SamplingParams(**lists, **mappings), SamplingParams(**copy.deepcopy({**lists, **mappings}))
    for value in lists.values():
        value.append(value[0])
    for value in mappings.values():
        value.clear()
        with pytest.raises(TypeError):
            params.logit_bias[1] = 3.0
        with pytest.raises(TypeError):
            params.response_format["type"] = "text"
    assert params == same
    assert params.stop == ("a",)
    assert params.logit_bias == {1: 2.0}
    assert repr(params.logit_bias) == "{1: 2.0}"
    assert len({params, same, replace(same), copy.deepcopy(same), pickle.loads(pickle.dumps(same))}) == 1
    assert replace(same, stop=["c"]).stop == ("c",)
