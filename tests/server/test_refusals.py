"""What cannot be honoured is refused in OpenAI's shape, by the name of the field, and disturbs nothing else."""

import asyncio
import json
import threading

import pytest
from pydantic import ValidationError
from toy_server import TOOLS_TEMPLATE, ask, asking, toy_llm

from outrider.server.schemas import ChatRequest, CompletionRequest, TokenizeRequest
from outrider.server.settings import Settings

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "a"}


def calling(arguments):
    """Return messages in which an assistant calls a tool."""
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    return [{"role": "assistant", "content": None, "tool_calls": [call]}]


CHATS = {
    "an unknown field": ({"temprature": 1}, "temprature"),
    "an unknown field within": ({"speculation": {"enable": True}}, "speculation.enable"),
    "an unknown field in a message": ({"messages": [{"role": "user", "content": "a", "x": 1}]}, "messages[0].x"),
    "no messages": ({"messages": []}, "messages"),
    "arguments that are no object": ({"messages": [*calling("[]"), USER]}, "messages[0].tool_calls"),
    "arguments that are deep": (
        {"messages": [*calling('{"a":' * 900 + "1" + "}" * 900), USER]},
        "messages[0].tool_calls",
    ),
    "arguments that are not Unicode": ({"messages": [*calling('{"a": "\\ud800"}'), USER]}, "messages[0].tool_calls"),
    "a stream of prompt_logprobs": ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    "options of a stream that is none": ({"stream_options": {"include_usage": True}}, "stream_options"),
    "messages that are text": ({"messages": "hi"}, "messages"),
    "a message without content": ({"messages": [{"role": "user"}]}, "messages"),
    "a role nobody has": ({"messages": [{"role": "poet", "content": "a"}]}, "messages[0].role"),
    "a picture": ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    "a number as text": ({"temperature": "0"}, "temperature"),
    "a truth as a number": ({"temperature": True}, "temperature"),
    "a number that is not whole": ({"max_tokens": 1.5}, "max_tokens"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "more tokens than the context": ({"max_tokens": 401}, "max_tokens"),
    "both names of a limit": ({"max_completion_tokens": 1}, "max_tokens"),
    "a temperature below zero": ({"temperature": -1}, "temperature"),
    "a huge temperature": ({"temperature": 2**60}, "temperature"),
    "top_p of zero": ({"top_p": 0}, "top_p"),
    "a negative seed": ({"seed": -1}, "seed"),
    "n of zero": ({"n": 0}, "n"),
    "an absurd n": ({"n": 10**9}, "n"),
    "more answers than places": ({"n": 128}, "n"),
    "top_logprobs without logprobs": ({"top_logprobs": 2}, "top_logprobs"),
    "absurd top_logprobs": ({"logprobs": True, "top_logprobs": 10**6}, "top_logprobs"),
    "absurd prompt_logprobs": ({"prompt_logprobs": 10**6}, "prompt_logprobs"),
    "an empty stop": ({"stop": ""}, "stop"),
    "a bias of no token": ({"logit_bias": {"-1": 1}}, "logit_bias"),
    "a bias of a token beyond": ({"logit_bias": {"259": 1}}, "logit_bias"),
    "a bias too large": ({"logit_bias": {"1": 101}}, "logit_bias"),
    "a token beyond": ({"allowed_token_ids": [10**9]}, "allowed_token_ids"),
    "a negative token": ({"stop_token_ids": [-1]}, "stop_token_ids"),
    "more least tokens than most": ({"min_tokens": 9}, "min_tokens"),
    "an unknown format": ({"response_format": {"type": "yaml"}}, "response_format"),
    "a schema that is none": ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
    "a schema that nothing fulfils": (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}},
        "response_format",
    ),
    "a grammar that is none": ({"response_format": {"type": "grammar", "grammar": "start: ("}}, "response_format"),
    "tools of a model without": ({"tools": [TOOL]}, "tools"),
    "a call without tools": ({"tool_choice": "required"}, "tool_choice"),
    "an unknown rule": ({"speculation": {"rule": "typical"}}, "speculation.rule"),
    "an unknown drafter": ({"speculation": {"drafter": "oracle"}}, "speculation.drafter"),
    "a negative draft length": ({"speculation": {"num_speculative_tokens": -1}}, "speculation.num_speculative_tokens"),
    "functions, which came before tools": ({"functions": []}, "functions"),
    "a prediction that is none": ({"prediction": {"type": "text", "content": "a"}}, "prediction.type"),
}
TEXTS = {
    "no prompt": ({"prompt": ""}, "prompt"),
    "no prompts": ({"prompt": []}, "prompt"),
    "prompts of two kinds": ({"prompt": ["a", 1]}, "prompt[1]"),
    "a prompt of no tokens": ({"prompt": [[]]}, "prompt"),
    "a token beyond": ({"prompt": [259]}, "prompt"),
    "a negative token": ({"prompt": [-1]}, "prompt"),
    "absurd logprobs": ({"logprobs": 10**6}, "logprobs"),
    "an echo with logprobs as a stream": ({"echo": True, "logprobs": 0, "stream": True}, "echo"),
    "a suffix": ({"suffix": "end"}, "suffix"),
}


def check(reply, status, param, name=None):
    assert reply.status_code == status, (name, reply.text)
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param, (name, error)
    assert 0 < len(error["message"]) <= 500


def test_every_field_that_is_wrong_is_named_and_the_server_goes_on():
    async def test(client):
        for name, (fields, param) in CHATS.items():
            reply = await client.chat(**fields)
            check(reply, 400, param, name)
        for name, (fields, param) in TEXTS.items():
            reply = await client.complete(**{"prompt": "a", **fields})
            check(reply, 400, param, name)
        assert (await client.chat()).status_code == 200
        assert client.service.engine.num_open == 0

    ask(test)


def test_what_is_wrong_with_the_request_itself_has_its_own_status():
    async def test(client):
        body = json.dumps({"model": "toy", "prompt": "a"}).encode()
        check(await client.post("/v1/completions", {"model": "other", "prompt": "a"}), 404, "model")
        check(await client.http.get("/v1/models/other"), 404, "model")
        check(await client.http.get("/nothing"), 404, None)
        check(await client.http.get("/v1/completions"), 405, None)
        check(await client.http.post("/v1/completions", content=body), 415, None)
        check(await client.post("/v1/completions", body + b" " * 3000), 413, None)
        check(await client.complete("x" * 400), 400, "prompt")
        assert (await client.complete("x" * 400)).json()["error"]["code"] == "context_length_exceeded"
        check(await client.chat("x" * 400), 400, "messages")

    ask(test, max_body_bytes=2000)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('only poems') }}", "refuses the messages: only poems"),
        ("{{ messages[7].content }}", "the chat template failed"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{{ a }}{% endfor %}{% endfor %}", "was stopped"),
    ],
)
def test_a_template_that_raises_is_the_requests_problem(template, words):
    async def test(client):
        reply = await client.chat()
        check(reply, 400, "messages")
        assert words in reply.json()["error"]["message"]
        assert (await client.complete()).status_code == 200

    ask(test, toy_llm(template=template))


def test_prediction_needs_a_drafter_and_says_so():
    async def test(client):
        check(await client.chat(prediction={"type": "content", "content": "abc"}), 400, "prediction")

    ask(test, toy_llm(None))


def test_a_tool_that_is_named_must_be_there():
    async def test(client):
        choice = {"type": "function", "function": {"name": "g"}}
        check(await client.chat(tools=[TOOL], tool_choice=choice), 400, "tool_choice")
        check(await client.chat(tools=[TOOL], tool_choice="any"), 400, "tool_choice")
        both = {"tool_choice": "required", "response_format": {"type": "json_object"}}
        check(await client.chat(tools=[TOOL], **both), 400, "tool_choice")

    ask(test, toy_llm(template=TOOLS_TEMPLATE))


def test_keys_are_asked_for_where_there_are_any():
    async def test(client):
        for path in ("/v1/models", "/metrics", "/outrider/info", "/openapi.json"):
            check(await client.http.get(path), 401, None)
            reply = await client.http.get(path, headers={"authorization": "Bearer two"})
            assert reply.status_code == 200
        for wrong in ("", "two", "Basic two", "Bearer three", "Bearer \xff"):
            check(await client.http.get("/v1/models", headers={"authorization": wrong.encode("latin1")}), 401, None)
        for path in ("/health", "/"):
            assert (await client.http.get(path)).status_code == 200

    ask(test, api_keys=("one", "two"))


def test_more_prompts_than_there_is_room_for_are_refused_before_any_is_made_ready():
    async def test(client):
        for prompts in (["a"] * 200_000, [[1]] * 200_000):
            reply = await client.complete(prompts, n=128)
            check(reply, 400, "n")
            assert "25600000 answers" in reply.json()["error"]["message"]

    llm = toy_llm()
    llm.requests = None  # whoever makes one ready fails
    ask(test, llm)


@pytest.mark.parametrize("wrong", [None, "", [""], [[]]])
def test_one_error_is_enough_of_a_list(wrong):
    for prompt in ([wrong] * 1000, [1] * 10 + [wrong] * 1000):
        with pytest.raises(ValidationError) as caught:
            CompletionRequest.model_validate({"model": "toy", "prompt": [*prompt, 0.5]})
        assert caught.value.error_count() < 10


@pytest.mark.parametrize(("schema", "rest"), [(ChatRequest, {"model": "toy"}), (TokenizeRequest, {})])
def test_one_error_is_enough_of_a_list_of_messages(schema, rest):
    with pytest.raises(ValidationError) as caught:
        schema.model_validate({**rest, "messages": [{}] * 1000})
    assert caught.value.error_count() < 10


def test_without_keys_other_sites_cannot_come_by_a_name_of_their_own():
    async def test(client):
        check(await client.http.get("/v1/models", headers={"host": "evil.example"}), 403, None)
        for host in ("localhost:8000", "127.0.0.1", "127.0.0.2:80", "[::1]:80"):
            assert (await client.http.get("/v1/models", headers={"host": host})).status_code == 200

    ask(test)


def test_too_many_requests_are_told_when_to_come_back():
    async def inside():
        async with asking(max_sequences=1, max_waiting=1) as client:
            is_over = threading.Event()
            scheduler = client.service.engine._scheduler
            scheduler.step = lambda step=scheduler.step: is_over.wait() and step()
            first = asyncio.create_task(client.chat(max_tokens=2))
            second = asyncio.create_task(client.chat(max_tokens=1))
            while client.service.engine.num_open < 2:
                await asyncio.sleep(0)
            reply = await client.chat()
            check(reply, 429, None)
            assert int(reply.headers["retry-after"]) >= 1
            is_over.set()
            assert {(await first).status_code, (await second).status_code} == {200}
            assert (await client.chat()).status_code == 200

    asyncio.run(inside())


def test_an_answer_that_takes_too_long_is_ended_and_its_place_is_free():
    async def test(client):
        check(await client.chat(max_tokens=90_000, ignore_eos=True), 504, None)
        (*_, last) = await client.stream(
            "/v1/completions", {"model": "toy", "prompt": "a", "max_tokens": 90_000, "ignore_eos": True}
        )
        assert last["error"]["code"] == "timeout"
        assert client.service.engine.num_open == 0
        client.service.settings = Settings()
        assert (await client.chat(max_tokens=1)).status_code == 200

    ask(test, toy_llm(max_length=100_000), request_timeout_s=0.5)
