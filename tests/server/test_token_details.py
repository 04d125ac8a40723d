"""What ``return_token_details`` tells of each token."""

from toy_llm import toy_model
from toy_server import ask, toy_llm

from outrider import SamplingParams

MESSAGES = [{"role": "user", "content": "hi"}]
BODY = {"model": "toy", "messages": MESSAGES, "max_tokens": 30, "temperature": 0, "return_token_details": True}


def stream(**fields):
    """Return the choices of a stream's chunks, for a target with a draft model."""

    async def test(client):
        return await client.stream("/v1/chat/completions", {**BODY, **fields})

    documents = ask(test, toy_llm(toy_model(0, max_length=400)))
    return [choice for document in documents[:-1] for choice in document["choices"]]


def test_tokens_are_told_of_as_they_come():
    choices = stream()
    tokens = [token for choice in choices for token in choice.get("token_details", ())]
    (output,) = toy_llm().generate([MESSAGES], SamplingParams(max_tokens=30))
    assert [token["id"] for token in tokens] == list(output.token_ids)
    assert "".join(token["text"] for token in tokens) == "".join(
        choice["delta"].get("content", "") for choice in choices
    )
    assert {token["source"] for token in tokens if token["origin"] == "accepted"} == {"toy"}
    assert {token["source"] for token in tokens if token["origin"] != "accepted"} == {None}
    for token in tokens:
        assert len(token["top_logprobs"]) == 5
        assert token["top_logprobs"][0]["logprob"] == token["logprob"]  # it was the likeliest


def test_a_stream_says_how_much_was_drafted_so_far():
    choices = stream()
    drafted = [choice["num_draft_tokens"] for choice in choices if "token_details" in choice]
    assert drafted == sorted(drafted)
    assert drafted[-1] == choices[-1]["speculation"]["num_draft_tokens"] > 0


def test_probabilities_can_be_left_out_and_change_nothing():
    with_them, without = stream(), stream(logprobs=False)
    tokens = [token for choice in without for token in choice.get("token_details", ())]
    assert {(token["logprob"], len(token["top_logprobs"])) for token in tokens} == {(None, 0)}
    ids = [token["id"] for choice in with_them for token in choice.get("token_details", ())]
    assert [token["id"] for token in tokens] == ids
