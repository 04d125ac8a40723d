"""``response_format`` is one of five things, and what it is not is refused with the reason."""

import json

import pytest

from outrider.errors import UsageError
from outrider.sampling import SamplingParams
from outrider.sampling.response_format import grammar_source


@pytest.mark.parametrize(
    ("response_format", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, ("json_schema", '{"type": "object"}')),
        ({"type": "json_schema", "json_schema": {"schema": True}}, ("json_schema", "true")),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "strict": False, "schema": {"type": "null"}}},
            ("json_schema", '{"type": "null"}'),
        ),
        ({"type": "regex", "regex": "a+"}, ("regex", "a+")),
        ({"type": "grammar", "grammar": 'start: "a"'}, ("grammar", 'start: "a"')),
    ],
)
def test_what_is_understood(response_format, expected):
    assert grammar_source(response_format) == expected
    assert SamplingParams(response_format=response_format).response_format == response_format


@pytest.mark.parametrize(
    ("response_format", "said"),
    [
        ("json", "is 'json'; it must be a mapping whose type is one of text, json_object"),
        ({}, "is {}; it must be"),
        ({"type": "xml"}, "'xml'"),
        ({"type": ["text"]}, "it must be a mapping whose type is one of"),
        ({"type": "regex", "regex": "\ud800"}, "for regex; it must be a text"),
        ({"type": "text", "json_schema": {}}, "of type 'text' does not know json_schema; it has nothing beside"),
        ({"type": "regex", "regex": "a", "flags": 1}, "does not know flags; it has regex beside its type"),
        ({"type": "regex"}, "has None for regex; it must be a text"),
        ({"type": "grammar", "grammar": ""}, "has '' for grammar"),
        ({"type": "json_schema"}, "has None for json_schema; it must be a mapping"),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "it must be a mapping with"),
        ({"type": "json_schema", "json_schema": {"schema": {}, "format": 1}}, "a json_schema with format; it knows"),
        ({"type": "json_schema", "json_schema": {"schema": {1, 2}}}, "a schema that is not JSON"),
        ({"type": "json_schema", "json_schema": {"schema": {"minimum": float("nan")}}}, "a schema that is not JSON"),
    ],
)
def test_what_is_not_is_refused(response_format, said):
    with pytest.raises(UsageError, match=f"response_format .*{said}"):
        SamplingParams(response_format=response_format)


def multiples(*numbers):
    return {"anyOf": [{"type": "number", "multipleOf": number} for number in numbers]}


@pytest.mark.parametrize("numbers", [(99991,), (0, 0.01, 100), (0.25, 5, 1000, 60), (2**16,), (1e-5, 1.0, 3600.0)])
def test_multiples_that_are_soon_looked_through_may_be_asked_for(numbers):
    assert grammar_source({"type": "json_schema", "json_schema": {"schema": multiples(*numbers)}})


@pytest.mark.parametrize(
    "numbers", [(100_003,), (997, 991), (0, 999983), (1e9,), (0.999983,), (10**4000,), range(1, 9999), [3] * 50_000]
)
def test_multiples_that_would_keep_a_server_busy_for_hours_are_refused(numbers):
    schema = multiples(*numbers)
    text = json.dumps(schema)
    for one in (
        {"type": "json_schema", "json_schema": {"schema": schema}},
        {"type": "grammar", "grammar": f"start: %json {text}"},
        {"type": "grammar", "grammar": "start: %json " + text.replace("multipleOf", r"\u006dultiple\u004Ff")},
    ):
        with pytest.raises(UsageError, match="too long to follow"):
            grammar_source(one)


@pytest.mark.parametrize("settings", [{"ignore_eos": True}, {"min_tokens": 1}])
def test_what_a_grammar_contradicts_is_refused_by_name(settings):
    (field,) = settings
    with pytest.raises(UsageError, match=f"{field} is .*response_format decides when an answer may end"):
        SamplingParams(response_format={"type": "json_object"}, **settings)
    SamplingParams(response_format={"type": "text"}, **settings)
