"""Clients as people use them, unmodified: openai's and Hugging Face's."""

import openai
import pytest
from huggingface_hub import InferenceClient
from test_tools import CALL, WEATHER, saying
from toy_server import serving, toy_llm

from outrider import SamplingParams

MESSAGES = [{"role": "user", "content": "abcabcabc"}]


@pytest.fixture(scope="module")
def address():
    with serving(api_keys=("key",)) as (url, _):
        yield url


@pytest.fixture
def client(address):
    with openai.OpenAI(base_url=f"{address}/v1", api_key="key", max_retries=0) as client:
        yield client


def answer(**settings):
    return toy_llm().generate([MESSAGES], SamplingParams(**settings))[0]


def test_openai_chats_and_streams(client):
    settings = {"model": "toy", "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 20}
    whole = client.chat.completions.create(**settings)
    expected = answer(max_tokens=20)
    assert whole.choices[0].message.content == expected.text
    assert whole.usage.completion_tokens_details.accepted_prediction_tokens == 0
    assert whole.choices[0].speculation["drafter"] == "ngram"
    stream = client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True})
    *chunks, last = stream
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == expected.text
    once, again = (one.usage.model_dump(exclude={"prompt_tokens_details"}) for one in (whole, last))
    assert once == again  # but for how much of the prompt had been read before


def test_openai_speaks_of_probabilities_and_seeds(client):
    settings = {"model": "toy", "messages": MESSAGES, "max_tokens": 9, "seed": 3, "n": 2, "logprobs": True}
    reply = client.chat.completions.create(**settings, top_logprobs=3, logit_bias={"7": -5}, stop=["zzz"])
    assert len(reply.choices) == 2
    assert len(reply.choices[0].logprobs.content) == 9
    assert len(reply.choices[1].logprobs.content[0].top_logprobs) == 3
    again = client.chat.completions.create(**settings, top_logprobs=3, logit_bias={"7": -5}, stop=["zzz"])
    assert again.choices[0].message == reply.choices[0].message


def test_openai_takes_our_own_fields_as_extra_body(client):
    extra = {"top_k": 5, "speculation": {"enabled": False}, "return_token_details": True}
    settings = {"model": "toy", "messages": MESSAGES, "temperature": 0, "max_tokens": 5}
    reply = client.chat.completions.create(**settings, extra_body=extra)
    assert reply.speculation["active"] is False
    assert [token["origin"] for token in reply.choices[0].token_details] == ["plain"] * 5


def test_openai_predicts_outputs(client):
    text = answer(max_tokens=40).text
    prediction = {"type": "content", "content": text}
    settings = {"model": "toy", "messages": MESSAGES, "temperature": 0, "max_tokens": 40}
    assert client.chat.completions.create(**settings, prediction=prediction).choices[0].message.content == text


def test_openai_completes_and_lists(client):
    reply = client.completions.create(
        model="toy", prompt=["a", "b"], max_tokens=3, temperature=0, logprobs=1, echo=True
    )
    assert [choice.text[0] for choice in reply.choices] == ["a", "b"]
    assert reply.choices[0].logprobs.token_logprobs[0] is None
    assert [model.id for model in client.models.list()] == ["toy"]
    assert client.models.retrieve("toy").owned_by == "outrider"


def test_openai_raises_its_own_errors(client, address):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="toy", messages=MESSAGES, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        client.chat.completions.create(model="gpt", messages=MESSAGES)
    stranger = openai.OpenAI(base_url=f"{address}/v1", api_key="other", max_retries=0)
    with pytest.raises(openai.AuthenticationError), stranger:
        stranger.models.list()


def test_openai_calls_tools():
    with serving(saying(CALL)) as (url, _), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        settings = {
            "model": "toy",
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [WEATHER],
            "temperature": 0,
        }
        message = client.chat.completions.create(**settings).choices[0].message
        assert message.tool_calls[0].function.name == "weather"
        deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**settings, stream=True)]
        (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
        assert call.function.model_dump() == message.tool_calls[0].function.model_dump()
        said = message.model_dump()  # as people send it back
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain."}
        again = client.chat.completions.create(**{**settings, "messages": [*settings["messages"], said, result]})
        assert again.choices[0].finish_reason == "stop"


def test_hugging_faces_client_chats_and_streams(address):
    client = InferenceClient(base_url=f"{address}/v1", api_key="key")
    settings = {"model": "toy", "messages": MESSAGES, "temperature": 0.0, "max_tokens": 20}
    whole = client.chat_completion(**settings)
    assert whole.choices[0].message.content == answer(max_tokens=20).text
    chunks = client.chat_completion(**settings, stream=True)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == answer(max_tokens=20).text
    )
