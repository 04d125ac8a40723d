"""What the API answers, in the shapes that clients know."""

import asyncio
import json
import math

from toy_llm import toy_tokenizer
from toy_server import ask, asking, events, toy_llm

from outrider import SamplingParams

MESSAGES = [{"role": "user", "content": "hi"}]
GREEDY = SamplingParams(max_tokens=8)
CHAT = "/v1/chat/completions"
A, B, C = toy_tokenizer().encode("abc")


def generate(prompt=MESSAGES, params=GREEDY, **options):
    return toy_llm().generate([prompt] if isinstance(prompt, list) else prompt, params, **options)


def test_a_chat_is_answered_as_generate_does():
    async def test(client):
        reply = await client.chat()
        assert reply.status_code == 200
        return reply.json()

    (output,) = generate()
    document = ask(test)
    choice = document["choices"][0]
    assert document["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": output.text}
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"] is None
    assert document["usage"]["prompt_tokens"] == output.usage.prompt_tokens
    assert document["usage"]["completion_tokens"] == 8
    assert document["usage"]["total_tokens"] == output.usage.prompt_tokens + 8
    assert choice["speculation"] == document["speculation"] == output.speculation.to_json()
    assert set(document["timing"]) == {"queue_s", "prefill_s", "decode_s", "tokens_per_s"}


def test_what_of_the_prompts_was_read_before_is_counted_once_a_prompt():
    async def test(client):
        body = {"max_tokens": 2, "n": 3}
        replies = [(await client.complete(one, **body)).json() for one in ([[A, B] * 20], [[A, B] * 25, [C] * 30])]
        return [reply["usage"]["prompt_tokens_details"] for reply in replies]

    assert ask(test) == [{"cached_tokens": 0}, {"cached_tokens": 40}]


def test_a_stream_is_the_whole_reply_piece_by_piece():
    async def test(client):
        body = {"model": "toy", "messages": MESSAGES, "max_tokens": 20, "temperature": 0}
        body |= {"stream_options": {"include_usage": True}, "return_token_details": True}
        return (await client.chat(max_tokens=20)).json(), await client.stream(CHAT, body)

    whole, stream = ask(test)
    *chunks, usage, done = stream
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks)
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(one["delta"].get("content", "") for one in choices) == whole["choices"][0]["message"]["content"]
    assert [one["finish_reason"] for one in choices] == [None] * (len(choices) - 1) + ["length"]
    assert chunks[-1]["speculation"] == whole["speculation"]
    details = [token for one in choices for token in one.get("token_details", ())]
    assert len(details) == 20
    assert details[0]["origin"] == "plain"
    assert {len(token["top_logprobs"]) for token in details} == {5}
    assert all(token["source"] == ("ngram" if token["origin"] == "accepted" else None) for token in details)
    assert "".join(token["text"] for token in details) == whole["choices"][0]["message"]["content"]


def test_no_client_takes_a_character_for_the_end_of_a_line():
    odd = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\x1dh\x1ei\rj"

    async def test(client):
        reply = await client.complete(odd, echo=True, max_tokens=4, stream=True)
        lines = [line for line in reply.text.splitlines() if line]  # which ends lines at all of these
        assert all(line.startswith("data: ") for line in lines)
        documents = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        text = "".join(one["choices"][0]["text"] for one in documents)
        assert text == (await client.complete(odd, echo=True, max_tokens=4)).json()["choices"][0]["text"]

    ask(test)


def test_several_answers_each_have_their_index_and_their_account():
    async def test(client):
        settings = {"n": 3, "temperature": 1, "seed": 5}
        whole = (await client.chat(**settings)).json()
        body = {"model": "toy", "messages": MESSAGES, "max_tokens": 8, **settings}
        return whole, await client.stream(CHAT, body)

    outputs = generate(params=SamplingParams(max_tokens=8, temperature=1.0, seed=5, n=3))
    whole, stream = ask(test)
    texts = [output.text for output in outputs]
    assert [choice["message"]["content"] for choice in whole["choices"]] == texts
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert "speculation" not in whole
    assert whole["usage"]["completion_tokens"] == sum(output.usage.completion_tokens for output in outputs)
    pieces = ["", "", ""]
    for chunk in stream[:-1]:
        choice = chunk["choices"][0]
        pieces[choice["index"]] += choice["delta"].get("content", "")
    assert pieces == texts


def test_log_probabilities_come_in_both_styles():
    async def test(client):
        chat = (await client.chat(logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]
        text = (await client.complete("hi", max_tokens=8, logprobs=2)).json()["choices"][0]
        return chat, text

    (output,) = generate(params=SamplingParams(max_tokens=8, logprobs=2))
    chat, text = ask(test)
    assert chat["refusal"] is None
    for entry, seen in zip(chat["content"], output.logprobs, strict=True):
        assert math.isclose(entry["logprob"], seen.logprob)
        assert [top["logprob"] for top in entry["top_logprobs"]] == [logprob for _, logprob in seen.top]
        assert entry["top_logprobs"][0]["bytes"] is not None
    (plain,) = generate("hi", SamplingParams(max_tokens=8, logprobs=2), chat=False)
    legacy = text["logprobs"]
    assert legacy["token_logprobs"] == [one.logprob for one in plain.logprobs]
    assert len(legacy["tokens"]) == len(legacy["top_logprobs"]) == len(legacy["text_offset"]) == 8
    assert legacy["text_offset"][0] == 0
    assert legacy["text_offset"] == sorted(legacy["text_offset"])


def test_a_completion_takes_texts_and_ids_and_echoes_them():
    async def test(client):
        one = (await client.complete("ab", max_tokens=6)).json()
        ids = (await client.complete([A, B], max_tokens=6)).json()
        both = (await client.complete(["ab", "c"], max_tokens=6, echo=True)).json()
        listed = (await client.complete([[A, B]], max_tokens=6, echo=True, logprobs=0)).json()
        default = (await client.complete("ab", ignore_eos=True)).json()
        return one, ids, both, listed, default

    one, ids, both, listed, default = ask(test)
    assert one["object"] == "text_completion"
    text = one["choices"][0]["text"]
    assert text == generate("ab", SamplingParams(max_tokens=6), chat=False)[0].text
    assert ids["choices"][0]["text"] == text
    assert [choice["text"][: len(prompt)] for choice, prompt in zip(both["choices"], ["ab", "c"], strict=True)] == [
        "ab",
        "c",
    ]
    assert both["choices"][0]["text"] == "ab" + text
    assert both["usage"]["prompt_tokens"] == 3
    assert listed["choices"][0]["text"] == "ab" + text
    assert listed["choices"][0]["logprobs"]["tokens"][:2] == ["a", "b"]
    assert listed["choices"][0]["logprobs"]["token_logprobs"][0] is None
    assert len(listed["choices"][0]["logprobs"]["tokens"]) == 8
    assert default["usage"]["completion_tokens"] == 16


def test_prompt_logprobs_are_told_by_id():
    async def test(client):
        return (await client.complete([A, B, C], max_tokens=1, prompt_logprobs=1)).json()

    first, *others = ask(test)["choices"][0]["prompt_logprobs"]
    assert first is None
    for token_id, seen in zip((B, C), others, strict=True):
        assert seen[str(token_id)]["decoded_token"] == toy_tokenizer().decode([token_id])
        assert seen[str(token_id)]["logprob"] <= 0
        assert 1 in {one["rank"] for one in seen.values()}


def test_what_vllm_adds_is_honoured():
    async def test(client):
        forced = (await client.chat(allowed_token_ids=[A], max_tokens=4)).json()
        least = (await client.chat(max_tokens=9, min_tokens=9, stop=["a"], allowed_token_ids=[A])).json()
        off = (await client.chat(top_k=-1, min_p=0.0, repetition_penalty=1.0, typical_p=1.0, top_p=1.0)).json()
        stopped = (await client.chat(allowed_token_ids=[A], stop_token_ids=[A])).json()
        biased = (await client.chat(logit_bias={str(B): 100}, max_tokens=3)).json()
        return forced, least, off, stopped, biased

    forced, least, off, stopped, biased = ask(test)
    assert forced["choices"][0]["message"]["content"] == "aaaa"
    assert least["usage"]["completion_tokens"] == 9
    assert off["choices"][0]["message"]["content"] == generate()[0].text
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["choices"][0]["message"]["content"] == ""
    assert biased["choices"][0]["message"]["content"] == "bbb"


def test_speculation_is_what_a_request_wants_and_changes_no_text():
    wishes = [None, {"enabled": False}, {"num_speculative_tokens": 2}, {"drafter": "ngram"}, {"rule": "coupled"}]

    async def test(client):
        replies = [await client.chat("abcabcabc", max_tokens=30, speculation=wish) for wish in wishes]
        return [reply.json() for reply in replies]

    on, off, short, named, coupled = ask(test)
    texts = {document["choices"][0]["message"]["content"] for document in (on, off, short, named, coupled)}
    assert len(texts) == 1
    assert on["speculation"]["active"]
    assert not off["speculation"]["active"]
    assert off["speculation"]["reason"] == "the request asked for none"
    assert off["speculation"]["num_drafts"] == 0
    assert "up to 2 tokens" in short["speculation"]["reason"]


def test_predicted_outputs_are_accounted_for():
    (output,) = generate(params=SamplingParams(max_tokens=60))
    prediction = {"type": "content", "content": output.text}

    async def test(client):
        return (await client.chat(max_tokens=60, prediction=prediction)).json()

    document = ask(test)
    details = document["usage"]["completion_tokens_details"]
    assert document["choices"][0]["message"]["content"] == output.text
    assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] >= 0
    assert details["accepted_prediction_tokens"] == document["speculation"]["accepted_prediction_tokens"]


def test_an_answer_may_have_to_be_json():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    shape = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}

    async def test(client):
        reply = await client.chat(response_format=shape, max_tokens=60, allowed_token_ids=None)
        return reply.json()["choices"][0]

    choice = ask(test)
    if choice["finish_reason"] == "stop":
        assert isinstance(json.loads(choice["message"]["content"])["a"], bool)
    assert choice["message"]["content"].startswith("{")


def test_tokenize_and_detokenize_are_each_others_inverse():
    async def test(client):
        there = (await client.post("/tokenize", {"prompt": "Grüße \U0001f642"})).json()
        back = (await client.post("/detokenize", {"tokens": there["tokens"]})).json()
        chat = (await client.post("/tokenize", {"messages": MESSAGES})).json()
        beyond = await client.post("/detokenize", {"tokens": [259]})
        neither = await client.post("/tokenize", {})
        return there, back, chat, beyond, neither

    there, back, chat, beyond, neither = ask(test)
    assert there["count"] == len(there["tokens"]) == 12
    assert there["max_model_len"] == 400
    assert back == {"prompt": "Grüße \U0001f642"}
    assert chat["tokens"] == toy_llm().encode(MESSAGES)
    assert beyond.status_code == neither.status_code == 400


def test_the_model_is_listed_and_the_server_tells_of_itself():
    async def test(client):
        models = (await client.http.get("/v1/models")).json()
        card = (await client.http.get("/v1/models/toy")).json()
        info = (await client.http.get("/outrider/info")).json()
        health = (await client.http.get("/health")).json()
        return models, card, info, health

    models, card, info, health = ask(test)
    assert models["data"] == [card]
    assert card["id"] == "toy"
    assert card["max_model_len"] == 400
    assert info["target"] == "toy"
    assert info["drafts"] == ["ngram"]
    assert info["speculation"]["active"]
    assert info["limits"]["max_sequences"] == 8
    assert health == {"status": "ok"}


def test_metrics_have_vllms_names():
    async def test(client):
        await client.chat("abcabcabcabc", max_tokens=40, ignore_eos=True)
        return (await client.http.get("/metrics")).text

    text = ask(test)
    for name in (
        *(
            "spec_decode_num_drafts_total",
            "spec_decode_num_draft_tokens_total",
            "spec_decode_num_accepted_tokens_total",
        ),
        *("time_to_first_token_seconds_count", "inter_token_latency_seconds_sum", "e2e_request_latency_seconds_bucket"),
        *("request_queue_time_seconds_count", "num_requests_running", "num_requests_waiting", "prompt_tokens_total"),
    ):
        assert f'vllm:{name}{{model_name="toy"' in text or f"vllm:{name}{{" in text, name
    assert 'vllm:generation_tokens_total{model_name="toy"} 40.0' in text


def test_the_log_tells_how_it_went_and_not_what_was_said():
    async def test(client):
        await client.chat("a secret")
        await client.complete("another secret", max_tokens=2, stream=True)
        return client.service.log._stream.getvalue()

    lines = [json.loads(line) for line in ask(test).splitlines()]
    assert [line["event"] for line in lines[:2]] == ["reply", "reply"]
    assert lines[0]["completion_tokens"] == 8
    assert "secret" not in json.dumps(lines)


def test_answers_of_a_crowd_are_those_of_each_alone():
    async def inside():
        async with asking(toy_llm("ngram"), max_sequences=4, max_waiting=99) as client:
            asked = [{"text": "x" * (number % 7 + 1), "max_tokens": 5 + number % 9} for number in range(24)]
            asked = [one | ({"temperature": 1, "seed": 3} if number % 2 else {}) for number, one in enumerate(asked)]
            together = await asyncio.gather(*(client.chat(**one) for one in asked))
            for one, reply in zip(asked, together, strict=True):
                alone = await client.chat(**one)
                assert reply.json()["choices"][0]["message"] == alone.json()["choices"][0]["message"]

    asyncio.run(inside())


def test_a_stream_of_a_completion_echoes_first():
    async def test(client):
        reply = await client.complete("ab", max_tokens=4, stream=True, echo=True)
        return events(reply.text)

    *chunks, done = ask(test)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks).startswith("ab")
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
