"""No body makes the server fail: the schema's own examples, and mutations of bodies that are good."""

import asyncio
import json
import random

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from toy_server import TOOLS_TEMPLATE, asking, serving, toy_llm

from outrider.server.openapi import document

GOOD = {
    "/v1/chat/completions": {
        "model": "toy",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2,
        "temperature": 0.5,
        "stop": ["x"],
        "n": 1,
        "logprobs": True,
        "logit_bias": {"5": 1},
        "response_format": {"type": "json_object"},
        "prediction": {"type": "content", "content": "ab"},
        "speculation": {"num_speculative_tokens": 2},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    },
    "/v1/completions": {"model": "toy", "prompt": ["a", "b"], "max_tokens": 2, "echo": True, "logprobs": 2, "seed": 1},
    "/tokenize": {"messages": [{"role": "user", "content": "hi"}]},
    "/detokenize": {"tokens": [1, 2, 3]},
}
STREAM_OPTIONS = {"include_usage": True}
ODD = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        -(2**63),
        2**64,
        10**30,
        0.1,
        1e308,
        -1e308,
        1e-320,
        "",
        "x",
        "\ud800",
    ),
    *("\0", "\U0001f642" * 50, "<|end|>", [], [[]], {}, {"a": 1}, [None], ["x"] * 3, [1] * 300, {"type": "text"}),
    [{}],
    *(
        {"type": "regex", "regex": "(a"},
        {"type": "regex", "regex": "(a{1,9}){1,9}"},
        {"type": "grammar", "grammar": "x"},
    ),
    {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}},
    {"type": "json_schema", "json_schema": {"schema": {"pattern": "(?=a)"}}},
]


def mutated(rng, value):
    """Return a value with something odd somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return {**value, key: mutated(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.6:
        place = rng.randrange(len(value))
        return [*value[:place], mutated(rng, value[place]), *value[place + 1 :]]
    return rng.choice(ODD)


async def good_or_refused(client, path, body):
    """Ask, and return whether there was an answer; nothing else may come of it than that and a refusal."""
    reply = await client.post(path, json.dumps(body).encode())
    assert reply.status_code in (200, 400, 404), (reply.status_code, reply.text, body)
    if reply.status_code != 200:
        assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    return reply.status_code == 200


def test_no_mutation_of_a_good_body_makes_it_fail():
    rng = random.Random(8)
    answered = 0

    async def inside():
        nonlocal answered
        async with asking(toy_llm(template=TOOLS_TEMPLATE)) as client:
            for path, good in GOOD.items():
                for _ in range(70 if path.startswith("/v1") else 20):
                    body = {
                        name: value for name, value in good.items() if rng.random() < 0.7 or name in ("model", "prompt")
                    }
                    for _ in range(rng.choice([0, 1, 1, 2])):
                        body = mutated(rng, body)
                    if isinstance(body, dict) and rng.random() < 0.3:
                        body = {**body, "stream": True, "stream_options": rng.choice([None, STREAM_OPTIONS])}
                    answered += await good_or_refused(client, path, body)
            assert answered > 25
            assert client.service.engine.num_open == 0

    asyncio.run(inside())


@pytest.fixture(scope="module")
def address():
    with serving(toy_llm(), max_waiting=500) as (url, _):
        yield url


SCHEMA = schemathesis.openapi.from_dict(document("0"))


@SCHEMA.parametrize()
@settings(
    max_examples=12, deadline=None, phases=[Phase.generate], derandomize=True, suppress_health_check=list(HealthCheck)
)
def test_the_schemas_own_examples_never_fail(case, address):
    reply = case.call(base_url=address, timeout=60)
    assert reply.status_code < 500, (reply.status_code, reply.text)
