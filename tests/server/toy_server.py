"""A server around toy models, asked without a socket."""

import asyncio
import json
import socket
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from io import StringIO

import httpx
from toy_llm import TEMPLATE, toy_tokenizer

from outrider import LLM
from outrider.backends.toy import HashLM, ToyBackend
from outrider.engine.loading import Model
from outrider.models.chat_template import ChatTemplate
from outrider.server.app import make_app
from outrider.server.logs import Log
from outrider.server.running import Server, configure, reserve
from outrider.server.service import Service
from outrider.server.settings import Settings

TOOLS_TEMPLATE = "{% if tools %}<tool_call>{{ tools | tojson }}{% endif %}" + TEMPLATE


def toy_llm(draft="ngram", *, template=TEMPLATE, max_length=400, backend=None, **options):
    tokenizer = toy_tokenizer()
    backend = backend or ToyBackend(HashLM(tokenizer.vocab_size, seed=0, max_weight=10**6), max_length)
    chat = ChatTemplate(template, bos_token="", eos_token="<|end|>")
    return LLM(Model("toy", backend, tokenizer, chat, 2 * max_length), draft, **options)


class Client:
    """Asks the application of a service."""

    def __init__(self, service, http):
        self.service = service
        self.http = http
        self.log = service.log

    async def post(self, path, body, **options):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return await self.http.post(path, content=content, headers=headers, **options)

    async def chat(self, text="hi", **fields):
        messages = [{"role": "user", "content": text}]
        body = {"model": "toy", "messages": messages, "max_tokens": 8, "temperature": 0, **fields}
        return await self.post(
            "/v1/chat/completions", {name: value for name, value in body.items() if value != "unset"}
        )

    async def complete(self, prompt="hi", **fields):
        return await self.post("/v1/completions", {"model": "toy", "prompt": prompt, "temperature": 0, **fields})

    async def stream(self, path, body):
        """Return the documents of a stream."""
        reply = await self.post(path, {**body, "stream": True})
        assert reply.status_code == 200, reply.text
        return events(reply.text)


def events(text):
    blocks = [block.removeprefix("data: ") for block in text.split("\n\n") if block]
    return [block if block == "[DONE]" else json.loads(block) for block in blocks]


@asynccontextmanager
async def asking(llm=None, **settings):
    service = Service(llm or toy_llm(), Settings(**settings), Log(StringIO()))
    app = make_app(service)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            yield Client(service, http)


def ask(test, llm=None, **settings):
    """Run a test's coroutine against a server around a toy."""

    async def inside():
        async with asking(llm, **settings) as client:
            return await asyncio.wait_for(test(client), 60)

    return asyncio.run(inside())


@contextmanager
def serving(llm=None, *, send_buffer=None, **settings):
    """Serve a toy on a free port of this machine; give the address and the service.

    ``send_buffer`` is how many bytes the system takes of what its clients do not read.
    """
    service = Service(llm or toy_llm(), Settings(**{"shutdown_timeout_s": 0.5, **settings}), Log(StringIO()))
    server, address = Server(configure(make_app(service), service.settings), service, "toy"), reserve("127.0.0.1", 0)
    if send_buffer is not None:
        address.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, args=([address],))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{address.getsockname()[1]}", service
    finally:
        server.should_exit = True
        thread.join()


def wait_until(condition):
    """Wait for something that another thread does."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")
