"""A server under people: they leave, they read slowly, they come in crowds, and one day it is told to stop."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest
import tiny
from toy_llm import toy_tokenizer
from toy_server import ask, serving, toy_llm, wait_until

from outrider import SamplingParams
from outrider.backends.toy import HashLM, ToyBackend
from outrider.cli import main
from outrider.errors import UsageError
from outrider.server import engine as engine_module
from outrider.server.keys import is_loopback
from outrider.server.problems import ApiError
from outrider.server.running import reserve

ENDLESS = {"model": "toy", "prompt": "a", "max_tokens": 50_000, "ignore_eos": True, "temperature": 0}
SHORT = httpx.Timeout(60, read=0.3)  # to hear of an answer; to be heard takes as long as it takes


def endless_llm(**options):
    return toy_llm("ngram", max_length=100_000, **options)


def replies(service):
    lines = [json.loads(line) for line in service.log._stream.getvalue().splitlines()]
    return [line for line in lines if line["event"] == "reply"]


def caches(service):
    return service.llm.model.backend._caches


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place_and_its_caches(stream, monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_UNREAD", ENDLESS["max_tokens"])  # a toy may outrun a busy event loop
    with serving(endless_llm(), max_sequences=1) as (url, service):
        with httpx.Client(base_url=url, timeout=60) as client:
            if stream:
                asked = {**ENDLESS, "stream": True, "return_token_details": True}
                with client.stream("POST", "/v1/completions", json=asked) as reply:
                    drafted = 0
                    for line in reply.iter_lines():
                        drafted = json.loads(line[6:])["choices"][0]["num_draft_tokens"] if line else drafted
                        if drafted:
                            break
            else:
                with pytest.raises(httpx.ReadTimeout):
                    client.post("/v1/completions", json=ENDLESS, timeout=SHORT)
        wait_until(lambda: service.engine.num_open == 0)
        with httpx.Client(base_url=url, timeout=60) as client:
            assert client.post("/v1/completions", json={**ENDLESS, "max_tokens": 2}).status_code == 200
        wait_until(lambda: service.engine._scheduler.num_live == 0)
        wait_until(lambda: len(replies(service)) == 2)  # a reply is logged after it was sent
        assert [line.get("gone") for line in replies(service)] == [True, None]
        if stream:
            told = replies(service)[0]
            assert told["num_draft_tokens"] >= drafted
            assert 0 <= told["num_accepted_tokens"] <= told["num_draft_tokens"]


def test_a_client_that_leaves_the_queue_is_never_worked_on():
    with (
        serving(endless_llm(), max_sequences=1) as (url, service),
        httpx.Client(base_url=url, timeout=60) as client,
        client.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}) as first,
    ):
        lines = first.iter_lines()  # kept, for to drop it is to hang up
        next(lines)
        with pytest.raises(httpx.ReadTimeout):
            client.post("/v1/completions", json=ENDLESS, timeout=SHORT)
        wait_until(lambda: service.engine.num_open == 1)
        wait_until(lambda: service.engine._scheduler.num_waiting == 0)


def test_a_reader_that_does_not_read_is_held_to_a_limit(monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_UNREAD", 50)

    async def test(client):
        requests = client.service.llm.requests([1, 2], SamplingParams(max_tokens=50_000, ignore_eos=True))
        ticket = client.service.engine.submit(requests)
        while ticket.problem is None:
            await asyncio.sleep(0.01)
        assert ticket.num_unread <= 50 + 65  # a round of the longest draft more
        assert client.service.engine.num_open == 0
        assert "read faster" in ticket.problem.message
        await ticket.read()  # what had come
        with pytest.raises(ApiError, match="read faster"):
            await ticket.read()

    ask(test, endless_llm())


def test_an_answer_that_fails_fails_alone():
    class Fragile(ToyBackend):
        def forward(self, batch):
            if any(len(self._caches[rows.sequence_id]) > 60 for rows in batch):
                raise MemoryError
            return super().forward(batch)

    backend = Fragile(HashLM(toy_tokenizer().vocab_size, max_weight=10**6), 400)

    async def test(client):
        long, short = await asyncio.gather(
            client.chat(max_tokens=200, ignore_eos=True), client.chat(max_tokens=20, ignore_eos=True)
        )
        assert long.status_code == 500
        assert "MemoryError" in long.json()["error"]["message"]
        assert short.status_code == 200
        several = (await client.chat(n=2, max_tokens=200, ignore_eos=True)).json()
        assert [choice["finish_reason"] for choice in several["choices"]] == ["error", "error"]
        (*_, last) = await client.stream(
            "/v1/completions", {"model": "toy", "prompt": "a", "max_tokens": 300, "ignore_eos": True}
        )
        assert last["error"]["type"] == "server_error"
        assert (await client.chat()).status_code == 200

    ask(test, toy_llm(backend=backend))


def test_a_schema_that_becomes_too_much_on_the_way_is_the_clients_mistake():
    names = {f"p{number}": {"type": "string"} for number in range(3000)}
    schema = {"type": "object", "properties": names, "additionalProperties": False}

    async def test(client):
        wanted = {"type": "json_schema", "json_schema": {"name": "much", "schema": schema}}
        reply = await client.chat(response_format=wanted, max_tokens=50)
        assert reply.status_code == 400
        assert "response_format cannot be honoured" in reply.json()["error"]["message"]
        assert (await client.chat()).status_code == 200

    ask(test, toy_llm())


def test_a_mistake_in_the_engine_ends_what_is_open_and_no_more(monkeypatch):
    async def test(client):
        with monkeypatch.context() as patch:
            patch.setattr(client.service.engine._scheduler, "step", lambda: 1 / 0)
            reply = await client.chat()
            assert reply.status_code == 500
            assert "ZeroDivisionError" in reply.json()["error"]["message"]
        assert (await client.chat()).status_code == 200
        assert client.service.engine.num_open == 0

    ask(test)


def test_a_server_that_stops_lets_in_nobody_and_says_what_it_cut_off():
    replies = []

    def complete(**fields):
        replies.append(httpx.post(f"{url}/v1/completions", json=ENDLESS | fields, timeout=60))

    with serving(endless_llm()) as (url, service):
        threads = [threading.Thread(target=complete, kwargs={"stream": stream}) for stream in (False, True)]
        for thread in threads:
            thread.start()
        wait_until(lambda: service.engine.num_open == 2)
        service.is_stopping = True
        for method, path in (("GET", "/health"), ("POST", "/v1/completions")):
            reply = httpx.request(method, url + path, json=ENDLESS, timeout=60)
            assert reply.status_code == 503
            assert reply.json()["error"]["type"] == "server_error"
    for thread in threads:
        thread.join()
    whole, streamed = sorted(replies, key=lambda reply: -reply.status_code)
    assert (whole.status_code, streamed.status_code) == (503, 200)
    last = json.loads(streamed.text.rstrip().split("\n\n")[-1].removeprefix("data: "))
    for told in (whole.json(), last):
        assert told["error"]["code"] == "stopped"
    assert service.num_cut_off == 2
    assert not caches(service)
    assert json.loads(service.log._stream.getvalue().splitlines()[-1])["cut_off"] == 2


def test_a_command_that_fails_ends_what_is_open_and_not_the_engine(monkeypatch):
    async def test(client):
        scheduler = client.service.engine._scheduler
        monkeypatch.setattr(scheduler, "submit", lambda request: 1 / 0)
        reply = await client.complete()
        assert reply.status_code == 500
        assert "ZeroDivisionError" in reply.json()["error"]["message"]
        assert (await client.complete()).status_code == 200  # with a new scheduler

    ask(test)


def is_hung_up_on(url, beginning):
    """Whether a server has enough of a request that does not end."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as asking:
        try:
            asking.sendall(beginning)
            while asking.recv(4096):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
    return True


def test_outrider_serve_says_what_it_loads_serves_and_stops(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("one\n\ntwo\n")
    command = [
        "serve",
        "--target",
        "smollm2-135m",
        "--draft",
        "ngram",
        "--port",
        "0",
        "--threads",
        "1",
        "--ctx-size",
        "512",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "outrider", *command, "--api-key-file", str(keys), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stderr.readline()
        assert line.startswith("outrider: serving smollm2-135m at http://127.0.0.1:")
        assert "speculation is on: ngram proposes up to 64 tokens a round" in line
        assert "GB of weights" in line
        assert "API key required" in line
        url = line.split(" at ")[1].split(" ")[0]
        headers = {"authorization": "Bearer two"}
        body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "Say hi"}], "max_tokens": 5}
        assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).status_code == 401
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
        assert reply.json()["usage"]["completion_tokens"] == 5
        assert is_hung_up_on(url, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 200_000)
        os.kill(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert json.loads(out) == {"cut_off": 0}
    assert [json.loads(one)["event"] for one in err.splitlines()] == ["reply", "problem", "stopping", "stopped"]


def test_what_is_sent_in_two_pieces_does_not_wait_for_the_first_to_be_confirmed():
    """Else the second waits up to 40 ms for a client who confirms nothing before it has something to say."""

    async def is_sent_at_once():
        accepted = asyncio.get_running_loop().create_future()

        def accept(_, writer):
            connection = writer.get_extra_info("socket")
            accepted.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = reserve("127.0.0.1", 0)
        async with await asyncio.start_server(accept, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await accepted

    assert asyncio.run(is_sent_at_once()) == 1


def test_addresses_that_cannot_be_had_are_refused():
    with reserve("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):  # nobody is heard before the models are loaded
            socket.create_connection(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(UsageError, match="choose another with --host and --port"):
            reserve("127.0.0.1", port)
    with pytest.raises(UsageError, match=r"cannot listen at 256\.0\.0\.1"):
        reserve("256.0.0.1", 0)
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("example.org")


def test_caches_for_less_than_one_answer_are_refused_by_the_name_of_the_flag(capfd, tmp_path):
    tiny.write_gguf(tiny.build_model(), tmp_path / "m.gguf", metadata=tiny.tokenizer_metadata(tiny.build_tokenizer()))
    small = ("--threads", "1", "--ctx-size", "64", "--cache-tokens", "1", "--port", "0")
    assert main(["serve", "--target", str(tmp_path / "m.gguf"), *small]) == 2
    assert "--cache-tokens is 1; one request may take 256, so raise it, or lower --ctx-size" in capfd.readouterr().err
