"""The way of tokens from the engine's thread to those who read them."""

import asyncio
import threading
from itertools import count

from toy_server import ask, toy_llm

from outrider import SamplingParams
from outrider.backends.toy import HashLM, ToyBackend
from outrider.server import engine as engine_module

BODY = {"model": "toy", "prompt": "hi", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
BODY |= {"return_token_details": True, "logprobs": 1}


def ticking(step_s, draft="none"):
    """Return an LLM for whom each look at the clock takes so long."""
    ticks = count()
    return toy_llm(draft, clock=lambda: step_s * next(ticks))


def stream_of(llm):
    async def test(client):
        return await client.stream("/v1/completions", BODY)

    documents = ask(test, llm)
    return [one["choices"][0] for one in documents[:-1]]


def test_short_rounds_are_told_of_together_and_each_token_still_by_itself():
    (output,) = toy_llm().generate("hi", SamplingParams(max_tokens=60, ignore_eos=True, logprobs=1), chat=False)
    *chunks, last = stream_of(ticking(0.001))
    assert len(chunks) < 60 / 5
    assert [token["id"] for chunk in chunks for token in chunk["token_details"]] == list(output.token_ids)
    assert "".join(chunk["text"] for chunk in chunks) == output.text
    assert [one for chunk in chunks for one in chunk["logprobs"]["token_logprobs"]] == [
        one.logprob for one in output.logprobs
    ]
    offsets = [one for chunk in chunks for one in chunk["logprobs"]["text_offset"]]
    assert offsets == sorted(offsets)
    assert last["finish_reason"] == "length"


def timed(pass_s):
    """Return an LLM whose time passes in the passes of its model only."""

    class Timed(ToyBackend):
        now = 0.0

        def forward(self, batch):
            self.now += pass_s
            return super().forward(batch)

    backend = Timed(HashLM(259, seed=0, max_weight=10**6), 400)
    return toy_llm("none", backend=backend, clock=lambda: backend.now)


def handed_over(llm, **fields):
    """Return how many tokens at a time are handed over of the last of some answers."""

    async def test(client):
        engine, pairs = client.service.engine, []
        deliver = engine._deliver
        engine._deliver = lambda some: pairs.extend(some) or deliver(some)
        body = {"max_tokens": 6, "stream": True, "ignore_eos": True, **fields}
        assert (await client.complete(**body)).status_code == 200
        return [len(event.tokens) for _, event in pairs if event.choice == body.get("n", 1) - 1]

    return ask(test, llm)


def test_the_first_token_is_told_of_at_once():
    assert handed_over(ticking(0.001)) == [1, 5]


def test_long_rounds_are_told_of_one_by_one():
    assert handed_over(ticking(1.0)) == [1] * 6


def test_of_several_answers_two_short_rounds_are_told_of_together_and_no_more():
    assert handed_over(timed(0.001), max_tokens=12) == [1, 11]
    assert handed_over(timed(0.001), max_tokens=12, n=2) == [1, 2, 2, 2, 2, 2, 1]
    assert handed_over(timed(0.02), max_tokens=12, n=2) == [1] * 12


def test_while_a_prompt_is_read_beside_each_round_is_told_of_by_itself():
    async def test(client):
        engine, llm = client.service.engine, client.service.llm
        step, rounds, is_reached, gate = engine._scheduler.step, count(1), threading.Event(), threading.Event()

        def stopping():
            if next(rounds) == 20:
                is_reached.set()
                gate.wait()
            return step()

        engine._scheduler.step = stopping
        first = engine.submit(llm.requests([1, 2], SamplingParams(max_tokens=390, ignore_eos=True)))
        await asyncio.to_thread(is_reached.wait)
        told, deliver = [], engine._deliver
        engine._deliver = lambda pairs: told.extend(pairs) or deliver(pairs)
        prompt = [index % 250 for index in range(390)]
        late = engine.submit(llm.requests(prompt, SamplingParams(max_tokens=1)))
        gate.set()
        await late.read()
        return [len(event.tokens) for ticket, event in told if ticket is first]

    before, *counts = ask(test, timed(0.001))
    assert before > 10
    assert len(counts) > 4
    assert set(counts) == {1}


def test_whole_replies_are_handed_over_once():
    async def test(client):
        requests = client.service.llm.requests([1, 2], SamplingParams(max_tokens=6, ignore_eos=True))
        ticket = client.service.engine.submit(requests, is_streamed=False)
        (event,) = await ticket.read()
        assert len(event.tokens) == event.output.usage.completion_tokens == 6
        return client.service.metrics.text().decode()

    assert 'vllm:generation_tokens_total{model_name="toy"} 6.0' in ask(test, ticking(1.0))


def test_whole_replies_of_several_long_answers_are_not_taken_for_a_reader_that_is_slow(monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_UNREAD", 10)

    async def test(client):
        reply = await client.complete(n=3, max_tokens=20, ignore_eos=True)
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["completion_tokens"] == 60

    ask(test, ticking(1.0))


def test_a_mistake_while_an_answer_is_handed_over_is_told_and_the_server_goes_on():
    async def test(client):
        llm, output = client.service.llm, client.service.llm.output

        def broken(answer):
            raise RuntimeError("lost it")

        llm.output = broken
        reply = await client.complete(max_tokens=2)
        assert reply.status_code == 500
        assert reply.json()["error"]["message"] == "the engine failed: RuntimeError: lost it"
        llm.output = output
        assert (await client.complete(max_tokens=2)).status_code == 200

    ask(test, ticking(1.0), request_timeout_s=20)


def test_what_nobody_waits_for_any_more_is_counted():
    async def test(client):
        requests = client.service.llm.requests([1, 2, 3], SamplingParams(max_tokens=300, ignore_eos=True))
        ticket = client.service.engine.submit(requests)
        (event,) = await ticket.read()
        client.service.engine.cancel(ticket)
        assert (await client.complete(max_tokens=1)).status_code == 200  # by then it is gone
        text = client.service.metrics.text().decode()
        figures = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        ended = {
            reason: figures.get(f'vllm:request_success_total{{finished_reason="{reason}",model_name="toy"}}')
            for reason in ("abort", "length")
        }
        assert ended == {"abort": "1.0", "length": "1.0"}
        assert float(figures['vllm:generation_tokens_total{model_name="toy"}']) > len(event.tokens)
        assert float(figures['vllm:prompt_tokens_total{model_name="toy"}']) == 3 + 2
        assert float(figures['vllm:num_requests_running{model_name="toy"}']) == 0

    ask(test, ticking(0.001))
