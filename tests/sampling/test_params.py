"""Sampling parameters refuse what they cannot mean, with the field, the value and the limit."""

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
    ],
)
def test_ends_of_the_ranges_are_accepted(fields):
    params = SamplingParams(**fields)
    assert params.is_greedy == (params.temperature == 0)
