"""Does a server bear half an hour of everything at once?

    python -m benchmarks.soak --target smollm2-135m --requests 1000 --minutes 30 --out R.json

Requests of random shape come from twelve clients, as chats and completions, whole and streamed, greedy and seeded,
with grammars, log probabilities, several answers; some are cancelled in the queue or in the midst, some bodies are
bad. Then each text is asked for once more by itself. Exit status 1 unless there was no error that was not asked for,
every text is the one that its request gets alone, no place is leaked, and the memory is flat: the most that is held
in the last quarter is within 2 % of that in the second, when every kind of request has been seen and the caches are
full.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.peers.servers import Server, Size, ours
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, read_prompts

QUESTION = "A server under random requests, cancellations and bad bodies for half an hour"
CLIENTS = 12
_BAD: list[tuple[bytes, int]] = [
    (b"{", 400),
    (b'{"a": NaN}', 400),
    (b'{"model": "?", "prompt": "a"}', 404),
    (b'{"prompt": 1}', 400),
    (b'{"model": "\\ud800"}', 400),
    (b"[" * 100_000, 400),
    (b"x" * (5 << 20), 413),
]
_SHAPES: list[dict[str, Any]] = [
    {},
    {},
    {"temperature": 1.0, "top_p": 0.9},
    {"temperature": 0.7, "top_k": 40, "repetition_penalty": 1.1},
    {"response_format": {"type": "json_object"}},
    {"logit_bias": {"10": 2}, "presence_penalty": 0.5},
    {"stop": [".", "\n\n"]},
    {"speculation": {"enabled": False}},
    {"speculation": {"num_speculative_tokens": 3}},
    {"min_tokens": 8, "ignore_eos": True},
]


@dataclass(slots=True)
class Asked:
    """One request, how it is to be treated, and the texts that came of it."""

    path: str
    body: dict[str, Any]
    leaves_after: float | None = None
    texts: list[str] | None = None


def make(rng: random.Random, model: str, prompts: list[str]) -> Asked:
    """Return a request of random shape."""
    text = rng.choice(prompts)
    if rng.random() < 0.4:
        text = text[: rng.randrange(1, 400)]
    body: dict[str, Any] = {"model": model, "max_tokens": rng.choice([1, 5, 20, 60, 120]), "temperature": 0.0}
    body |= rng.choice(_SHAPES)
    if body["temperature"]:
        body |= {"seed": rng.randrange(2**32), "n": rng.choice([1, 1, 3])}
    if rng.random() < 0.2 and "min_tokens" in body:
        body["max_tokens"] = max(body["max_tokens"], 8)
    body["max_tokens"] = max(body["max_tokens"], body.get("min_tokens", 1))
    path = rng.choice(["/v1/chat/completions", "/v1/completions"])
    if path.endswith("chat/completions"):
        body["messages"] = [{"role": "user", "content": text}]
        if rng.random() < 0.3:
            body["messages"].insert(0, {"role": "system", "content": "You are a helpful assistant. " * 40})
            body |= {"logprobs": True, "top_logprobs": 2}
    else:
        body["prompt"] = text
    body["stream"] = rng.random() < 0.5
    return Asked(path, body, rng.choice([0.0, 0.05, 0.3, 1.0]) if rng.random() < 0.15 else None)


async def texts_of(http: httpx.AsyncClient, asked: Asked) -> list[str]:
    """Ask, and return the answers' texts."""
    async with http.stream("POST", asked.path, json=asked.body) as reply:
        if reply.status_code != 200:
            raise RuntimeError(f"status {reply.status_code}: {(await reply.aread())[:300]!r}")
        if not asked.body["stream"]:
            document = json.loads(await reply.aread())
            return [
                choice.get("text") or choice.get("message", {}).get("content") or "" for choice in document["choices"]
            ]
        texts = [""] * asked.body.get("n", 1)
        async for line in reply.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise RuntimeError(str(chunk["error"]))
            for choice in chunk["choices"]:
                texts[choice["index"]] += choice.get("text") or choice.get("delta", {}).get("content") or ""
        return texts


class Soak:
    """The clients, and what they have seen."""

    def __init__(self, server: Server, requests: list[Asked], seconds: float, rng: random.Random) -> None:
        self.server = server
        self.waiting = list(reversed(requests))
        self.answered: list[Asked] = []
        self.seen: Counter[str] = Counter()
        self.problems: list[str] = []
        self.memory: list[int] = []
        self.pause_s = seconds / max(1, len(requests)) * CLIENTS
        self.rng = rng

    async def client(self, http: httpx.AsyncClient) -> None:
        """Ask, leave, and misbehave, until there is nothing left to ask."""
        while self.waiting:
            asked = self.waiting.pop()
            due = time.monotonic() + self.pause_s
            try:
                if self.rng.random() < 0.1:
                    await self.misbehave(http)
                if asked.leaves_after is None:
                    asked.texts = await texts_of(http, asked)
                    self.answered.append(asked)
                    self.seen["answered"] += 1
                else:
                    await self.leave(http, asked)
            except (RuntimeError, httpx.HTTPError) as error:
                self.problems.append(f"{type(error).__name__}: {error} for {json.dumps(asked.body)[:300]}")
            self.memory.append(resident_bytes(self.server.process.pid))
            # Spread over the time there is, but never idle altogether.
            await asyncio.sleep(max(0.0, min(self.pause_s, due - time.monotonic())))

    async def leave(self, http: httpx.AsyncClient, asked: Asked) -> None:
        """Ask, and hang up after a while."""
        try:
            await asyncio.wait_for(texts_of(http, asked), asked.leaves_after)
            self.seen["answered before leaving"] += 1
        except asyncio.TimeoutError:
            self.seen["left"] += 1

    async def misbehave(self, http: httpx.AsyncClient) -> None:
        """Send something that is no request."""
        body, status = self.rng.choice(_BAD)
        reply = await http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        self.seen["bad bodies"] += 1
        if reply.status_code != status:
            self.problems.append(f"status {reply.status_code} in place of {status} for {body[:60]!r}")


async def run(soak: Soak) -> dict[str, Any]:
    """Let all clients loose, then ask for each text alone."""
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=soak.server.address, timeout=900, limits=limits) as http:
        started_at = time.monotonic()
        await asyncio.gather(*(soak.client(http) for _ in range(CLIENTS)))
        seconds = time.monotonic() - started_at
        await asyncio.sleep(1)
        open_requests = await still_open(http)
        different = []
        for asked in soak.answered:
            alone = await texts_of(http, asked)
            if alone != asked.texts:
                different.append({"asked": asked.body, "beside_others": asked.texts, "alone": alone})
    quarter = max(1, len(soak.memory) // 4)
    early, late = max(soak.memory[quarter : 2 * quarter]), max(soak.memory[-quarter:])
    return {
        "seconds": seconds,
        "seen": dict(soak.seen),
        "problems": soak.problems,
        "still_open": open_requests,
        "texts_compared": len(soak.answered),
        "texts_different": different,
        "memory_bytes": {"second_quarter": early, "last_quarter": late},
        "memory_growth": late / early - 1,
    }


async def still_open(http: httpx.AsyncClient) -> int:
    """Return how many requests the server thinks are open."""
    await http.post("/tokenize", json={"prompt": "a"})
    text = (await http.get("/metrics")).text
    figures = re.findall(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", text, re.MULTILINE)
    return sum(int(float(figure)) for figure in figures)


def resident_bytes(pid: int) -> int:
    """Return how much memory a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[0]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--draft", default="ngram")
    parser.add_argument("--requests", type=int, default=1000, help="the size of the run")
    parser.add_argument("--minutes", type=float, default=30.0, help="spread them over this time, if they take less")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    prompts = [prompt.text for prompt in read_prompts(PROMPTS)]
    requests = [make(rng, arguments.target, prompts) for _ in range(arguments.requests)]
    size = Size(arguments.threads, 8, 4096)
    with Server(ours("outrider", arguments.target, arguments.draft, size), sys.stderr.buffer) as server:
        results = asyncio.run(run(Soak(server, requests, arguments.minutes * 60, rng)))
    settings = {"target": arguments.target, "draft": arguments.draft, "requests": arguments.requests}
    hand_in(arguments, QUESTION, {**settings, **results})
    is_flat = results["memory_growth"] <= 0.02
    is_good = not (results["problems"] or results["texts_different"] or results["still_open"]) and is_flat
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
