"""A server with the API's contract and scripted answers, for the page to be tested against.

What is asked last chooses the answer: a key of ``SCRIPTS``, or an error. Every request is kept.
"""

import asyncio
import json
import re

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Mount, Route

from outrider.server.playground import page_routes

HOSTILE = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'> &amp; </div>"
INFO = {
    "target": "smollm2-135m",
    "drafts": ["ngram"],
    "memory_bytes": 880_000_000,
    "threads": 2,
    "speculation": {"active": True, "reason": "ngram proposes up to 64 tokens a round"},
    "defaults": {"temperature": 0.0, "max_tokens": 256},
    "limits": {"max_tokens": 4096},
    "version": "0.1.0",
}


def rounds(text, drafted=3):
    """Cut a text into words and let each round accept ``drafted`` of them, then end in a recovered or a bonus token."""
    words = re.findall(r" ?[^ \n]+|\s", text)
    yield [token(words[0], "plain")]
    for number, start in enumerate(range(1, len(words), drafted + 1)):
        some = words[start : start + drafted + 1]
        last = "bonus" if number % 2 else "recovered"
        yield [token(word, "accepted" if at < drafted else last) for at, word in enumerate(some)]


def token(text, origin):
    chance = {"accepted": -0.05, "recovered": -1.2, "bonus": -0.3, "plain": -0.7}[origin]
    top = [(text, chance), (" another", -3.0), ("\n", -4.5), ("<b>", -9.0)]
    return {
        "id": sum(text.encode()),
        "text": text,
        "origin": origin,
        "source": "ngram" if origin == "accepted" else None,
        "logprob": chance,
        "top_logprobs": [{"id": sum(text.encode()), "text": text, "logprob": logprob} for text, logprob in top],
    }


def plain(text):
    for some in rounds(text):
        for one in some:
            yield [{**one, "origin": "plain", "source": None}]


SCRIPTS = {
    "hello": "Hello there, it is good to see you here on such a fine and quiet morning.",
    "hostile": HOSTILE,
    "code": "Here it is:\n```python\ndef add(one, other):\n    return one + other\n```\nThat is all there is to it.",
    "long": " ".join(f"word{number}" for number in range(4000)),
    "slow": " ".join(f"word{number}" for number in range(400)),
    "wide": "w" * 400,
    "breaks": "This answer is never finished",
    "fails": "This answer ends in an error",
    "ends": "This answer is cut short",
}
UNWELL = "The logits of the target are not numbers."
REFUSALS = {
    "busy": (429, "8 requests are waiting, which is the limit.", {"Retry-After": "7"}),
    "odd": (400, "temperature is 9.0; it must be from 0 to 2", {}),
}


class FakeApi:
    """The answers, and what was asked and given up."""

    def __init__(self):
        self.requests = []
        self.cancelled = 0
        self.key = None
        self.speculates = True

    async def info(self, request):
        if not self.knows(request):
            return refusal(401, "The key is missing or unknown.")
        return JSONResponse(INFO)

    def knows(self, request):
        return self.key is None or request.headers.get("Authorization") == f"Bearer {self.key}"

    async def chat(self, request):
        body = await request.json()
        self.requests.append(body)
        if not self.knows(request):
            return refusal(401, "The key is missing or unknown.")
        asked = body["messages"][-1]["content"]
        if asked in REFUSALS:
            return refusal(*REFUSALS[asked])
        return StreamingResponse(self.stream(body, asked), media_type="text/event-stream")

    async def stream(self, body, asked):
        speculates = body["speculation"]["enabled"] and self.speculates
        counts = {"num_draft_tokens": 0, "num_accepted_tokens": 0, "num_drafts": 0}
        text = SCRIPTS.get(asked, SCRIPTS["hello"])
        if asked == "differs" and speculates:
            text = SCRIPTS["code"]
        try:
            for number, some in enumerate(rounds(text) if speculates else plain(text)):
                if number >= body["max_tokens"]:
                    break
                accepted = sum(one["origin"] == "accepted" for one in some)
                counts["num_drafts"] += speculates and number > 0
                counts["num_draft_tokens"] += 4 * (speculates and number > 0)
                counts["num_accepted_tokens"] += accepted
                yield event(
                    {
                        "choices": [
                            {
                                "index": 0,
                                "delta": {"content": "".join(one["text"] for one in some)},
                                "token_details": some,
                                "num_draft_tokens": counts["num_draft_tokens"],
                                "finish_reason": None,
                            }
                        ]
                    }
                )
                await asyncio.sleep({"slow": 0.05, "long": 0, "hello": 0.01}.get(asked, 0.002))
            if asked == "breaks":
                return
            if asked == "fails":
                yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": UNWELL}]})
                return
            if asked == "ends":
                yield event({"error": {"message": "The server is stopping.", "type": "server_error"}})
                return
            yield event({"choices": [{"index": 0, "delta": {}, "token_details": [], "finish_reason": "stop"}]})
            yield event(
                {
                    "choices": [],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 9},
                    "speculation": self.account(body, counts),
                }
            )
            yield b"data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def account(self, body, counts):
        """Return the ``speculation`` object."""
        drafted, accepted, drafts = counts.values()
        reasons = ["No draft is loaded.", "The request turned it off.", "Drafts by ngram."]
        return {
            "active": self.speculates and body["speculation"]["enabled"],
            "reason": reasons[self.speculates + (self.speculates and body["speculation"]["enabled"])],
            **counts,
            "acceptance_rate": accepted / drafted if drafted else None,
            "mean_acceptance_length": 1 + accepted / drafts if drafts else None,
        }


def refusal(status, message, headers=None):
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return JSONResponse({"error": error}, status, headers)


def event(document):
    return b"data: " + json.dumps(document).encode() + b"\n\n"


class ScriptedServer:
    """The page and the API of one test after the other, behind a path, as a proxy may put them."""

    def __init__(self):
        self.api = FakeApi()
        self.address = None  # where it is served
        routes = [
            Route("/outrider/info", self.info),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            *page_routes(),
        ]
        self.app = Starlette(routes=[Mount("/models", routes=routes)])

    async def info(self, request):
        return await self.api.info(request)

    async def chat(self, request):
        return await self.api.chat(request)


if __name__ == "__main__":  # to look at the page
    uvicorn.run(ScriptedServer().app, port=8123)
