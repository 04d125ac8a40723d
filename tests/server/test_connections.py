"""Clients that send or read slowly, or go on where they should not: each connection ends, and with it what it holds."""

import asyncio
import json
import socket
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from toy_server import ask, serving, toy_llm, wait_until
from uvicorn.server import ServerState

from outrider.server import connections
from outrider.server import engine as engine_module
from outrider.server.running import configure
from outrider.server.settings import Settings

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ENDLESS = {"model": "toy", "prompt": "a", "max_tokens": 90_000, "ignore_eos": True, "temperature": 0, "stream": True}


def connect(url, **options):
    host, port = url.removeprefix("http://").split(":")
    client = socket.socket()
    for name, value in options.items():
        client.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
    client.settimeout(20)
    client.connect((host, int(port)))
    return client


def read_to_end(client):
    """Return all that a server sends until it hangs up."""
    received = b""
    while piece := client.recv(1 << 16):
        received += piece
    return received


def with_body(body):
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def num_connections(url):
    """How many of a server's connections this machine knows."""
    port = int(url.rsplit(":", 1)[1])
    with open("/proc/net/tcp", encoding="ascii") as table:
        rows = [line.split() for line in table.readlines()[1:]]
    return sum(int(row[1].split(":")[1], 16) == port and row[3] in ("01", "04", "09") for row in rows)


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(connections, "_DRAIN_S", 0.01)

    async def body():
        yield b"{"
        await asyncio.Event().wait()

    async def test(client):
        headers = {"content-type": "application/json", "content-length": "9"}
        reply = await client.http.post("/v1/completions", content=body(), headers=headers)
        assert reply.status_code == 408
        assert reply.headers["connection"] == "close"

    ask(test, client_timeout_s=0.01)


@pytest.mark.parametrize("beginning", [b"", b"GET /health HT"])
def test_a_head_that_does_not_come_is_not_waited_for(beginning):
    with serving(client_timeout_s=0.2) as (url, _), connect(url) as slow:
        slow.sendall(beginning)
        assert read_to_end(slow) == b""


def test_who_goes_on_sending_after_a_refusal_is_hung_up_on():
    with serving(max_body_bytes=1000) as (url, _), connect(url) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"
        with pytest.raises(ConnectionError):
            client.sendall(piece * 1000)  # four times what is read of it after the answer


def test_a_body_that_is_a_little_too_large_is_refused_and_its_client_told():
    with serving(max_body_bytes=1000) as (url, _), connect(url) as client:
        client.sendall(with_body(b"x" * 4_000_000))
        received = read_to_end(client)
        assert b" 413 " in received
        assert json.loads(received.split(b"\r\n\r\n")[1])["error"]["message"].startswith("the body has more than 1000")


def test_a_request_that_is_refused_before_its_body_is_read_ends_its_connection():
    with serving(api_keys=("key",)) as (url, _), connect(url) as client:
        client.sendall(with_body(b"{}"))
        received = read_to_end(client)
        assert b" 401 " in received
        assert b"connection: close" in received


def test_a_reader_that_takes_nothing_loses_its_place_and_its_connection(monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_UNREAD", 1 << 20)
    llm = toy_llm("ngram", max_length=100_000)
    with serving(llm, send_buffer=4096, client_timeout_s=2.0) as (url, service):
        with connect(url, SO_RCVBUF=4096) as client:
            client.sendall(with_body(json.dumps(ENDLESS).encode()))
            wait_until(lambda: service.engine.num_open == 1)
            wait_until(lambda: service.engine.num_open == 0)
            wait_until(lambda: num_connections(url) == 1)  # the client's end
        wait_until(lambda: service.engine._scheduler.num_live == 0)
        text = service.metrics.text().decode()
        assert 'vllm:request_success_total{finished_reason="abort",model_name="toy"} 1.0' in text


class Timers:
    """A loop whose time passes when it is told to; ``due`` are the timers of our patience, which is 30 seconds."""

    def __init__(self):
        self.due = []

    def call_later(self, delay_s, call, *arguments):
        timer = SimpleNamespace(cancel=lambda: timer in self.due and self.due.remove(timer))
        timer.call = lambda: call(*arguments)
        if delay_s == 30:
            self.due.append(timer)
        return timer

    def create_task(self, *arguments, **options):
        return asyncio.get_running_loop().create_task(*arguments, **options)

    def go_on(self):
        timers, self.due = self.due, []
        for timer in timers:
            timer.call()


class Buffer(asyncio.Transport):
    """A connection of which the system takes nothing; ``size`` is what waits."""

    size = 0
    is_aborted = False
    written = b""

    def write(self, data):
        self.written += data

    def is_closing(self):
        return False

    def set_write_buffer_limits(self, high=None, low=None):
        assert high == 0

    def get_write_buffer_size(self):
        return self.size

    def abort(self):
        self.is_aborted = True


def connected(app):
    """Return a connection to an application, with the loop that keeps its time and what it writes to."""
    config = configure(app, Settings(client_timeout_s=30.0))
    config.load()
    loop, buffer = Timers(), Buffer()
    connection = config.http_protocol_class(config, ServerState(), {}, loop)
    connection.connection_made(buffer)
    return connection, loop, buffer


def test_a_connection_is_kept_between_requests_however_slow_its_client_is():
    async def test():
        connection, loop, buffer = connected(Response("told"))
        for number in range(1, 3):
            assert len(loop.due) == (number == 1)  # the first request is waited for
            connection.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while buffer.written.count(b"told") < number or connection.cycle.response_complete is False:
                await asyncio.sleep(0)
        assert not loop.due
        connection.data_received(b"GET / HT")
        loop.go_on()
        assert buffer.is_aborted

    asyncio.run(test())


def test_a_reader_that_gets_on_is_waited_for_and_one_that_does_not_is_not():
    connection, loop, buffer = connected(Starlette())
    connection.data_received(b"GET / HTTP/1.1\r\n")
    loop.due.clear()  # the head's, which is not waited for here
    for size in (900, 500, 100):
        buffer.size = size
        if size == 900:
            connection.pause_writing()
        else:
            loop.go_on()
        assert not buffer.is_aborted
    connection.resume_writing()
    assert not loop.due
    connection.pause_writing()
    loop.go_on()
    assert buffer.is_aborted
