"""JSON bodies are hostile input."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.server.bodies import parse_object
from outrider.server.problems import ApiError

HOSTILE = {
    "nothing": (b"", "not JSON"),
    "no JSON": (b"{", "not JSON"),
    "something behind": (b"{} {}", "not JSON"),
    "no object": (b"[1]", "must be a JSON object"),
    "not UTF-8": (b'{"a": "\xff"}', "byte 7"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "not JSON"),
    "NaN": (b'{"a": NaN}', "NaN is not a number"),
    "infinity": (b'{"a": -Infinity}', "-Infinity is not a number"),
    "a number that becomes infinity": (b'{"a": 1e999}', "infinity"),
    "a number beyond 64 bits": (b'{"a": 36893488147419103232}', "beyond 64 bits"),
    "a number of a million digits": (b'{"a": ' + b"9" * 10**6 + b"}", "beyond 64 bits"),
    "half a surrogate pair": (b'{"a": "\\ud800"}', "surrogate"),
    "half a surrogate pair in a key": (b'{"\\udfff": 1}', "surrogate"),
    "a key twice": (b'{"a": {"b": 1, "b": 2}}', "'b' stands twice"),
    "65 deep": (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "64 deep"),
    "a million deep": (b'{"a": ' + b"[" * 10**6 + b"]" * 10**6 + b"}", "64 deep"),
    "a million deep, in objects": (b'{"a":' * 10**5 + b"1" + b"}" * 10**5, "64 deep"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_not_plain_json_is_refused(name):
    body, words = HOSTILE[name]
    with pytest.raises(ApiError, match=words) as caught:
        parse_object(body)
    assert caught.value.status == 400
    assert len(json.dumps(caught.value.to_json())) < 1000


def test_a_key_that_stands_twice_is_named():
    with pytest.raises(ApiError) as caught:
        parse_object(b'{"seed": 1, "seed": 2}')
    assert caught.value.param == "seed"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_what_is_plain_json_is_read_as_it_is(document):
    assert parse_object(json.dumps(document).encode()) == document
    assert parse_object(json.dumps(document, ensure_ascii=False).encode()) == document


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:0123456789.eE+-\\uNaInfity', max_size=40).map(str.encode))
def test_no_bytes_do_anything_else(body):
    with suppress(ApiError):
        assert isinstance(parse_object(body), dict)
