"""How many tokens a second do we serve, to eight clients and to one, beside llama.cpp's server?

    python -m benchmarks.serving --target T [--draft D] --out R.json

Every server holds the same file and answers the same chats, greedily, as streams: ``--clients`` at a time, each with
the next question as soon as it has its answer. ``tokens_per_s`` is all answers' tokens by the time from the first
question to the last token; ``gap_p95_s`` the 95th percentile of the time between two chunks of an answer.

One client is compared with ``LLM.generate``, with the same drafts, in turns on three times as many prompts, now one
first and now the other, as in :mod:`outrider.metrics.paired`: all tokens by the time from the question to the end of
the answer, by the clock of who asks. A small model's whole answer comes in a few chunks, so the time after the first
would say little. No prompt comes twice, lest the server have it read already. Both are started anew for each third of
the prompts: where a process finds its memory makes it faster or slower by several percent than its twin.

Last, a prompt of 2,000 tokens comes while four others are being answered, several times: ``longest_gap_rounds`` is the
longest that one of them waited meanwhile, by what a round of theirs took before: the median of the time between two
chunks by how many rounds the later one tells of. ``longest_gaps_rounds`` are the five longest.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from benchmarks.contestants import tell
from benchmarks.models import locate
from benchmarks.peers.llama_cpp import NATIVE
from benchmarks.peers.servers import Server, Size, Spec, llama_cpp, ours
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, Prompt, pick, read_prompts
from outrider import LLM
from outrider.engine.contestant import Outrider
from outrider.metrics import SpeculationCounters
from outrider.metrics.paired import Answer, Contestant, Turn, summary, take_turns
from outrider.metrics.spread import spread

QUESTION = "Throughput and time between chunks of servers on the same file, by clients"
CONTEXT = 4096
LONG_PROMPT_TOKENS = 2000
LONG_PROMPTS = 5  # the longest of hundreds of gaps differs from time to time
ONE_CLIENT_TOKENS = 96
STARTS = 3  # of both processes that are compared for one client
DETAILS = {"return_token_details": True, "logprobs": False}  # which token came when, and no probabilities
# Of connections: llama-server closes idle ones, and a request may meet that.
ONE_REQUEST_EACH = httpx.Limits(max_keepalive_connections=0)


@dataclass(slots=True)
class Stream:
    """What one streamed answer was like: when its chunks with tokens came, of how many rounds, and all its tokens."""

    started_at: float
    chunks_at: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    num_tokens: int = 0

    @property
    def gaps(self) -> list[float]:
        """Seconds between chunks."""
        return [later - sooner for sooner, later in zip(self.chunks_at, self.chunks_at[1:], strict=False)]


def streaming(spec: Spec, text: str, num_tokens: int) -> dict[str, Any]:
    """Return the body of a request for a stream."""
    return {
        "model": spec.model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": num_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def ask(
    http: httpx.AsyncClient, spec: Spec, text: str, num_tokens: int, into: Stream | None = None, **fields: object
) -> Stream:
    """Ask one question and read the answer to its end."""
    stream = into or Stream(time.perf_counter())
    body = {**streaming(spec, text, num_tokens), **fields}
    async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line[6:])
            if any(choice["delta"].get("content") or choice.get("token_details") for choice in chunk["choices"]):
                stream.chunks_at.append(time.perf_counter())
                tokens = [token for choice in chunk["choices"] for token in choice.get("token_details", ())]
                stream.rounds.append(sum(token["origin"] != "accepted" for token in tokens))
            if chunk.get("usage"):
                stream.num_tokens = chunk["usage"]["completion_tokens"]
    return stream


async def ask_all(server: Server, texts: Sequence[str], clients: int, num_tokens: int) -> list[Stream]:
    """Ask all questions, so many at a time."""
    waiting = list(reversed(texts))
    streams = []

    async def client(http: httpx.AsyncClient) -> None:
        while waiting:
            streams.append(await ask(http, server.spec, waiting.pop(), num_tokens))

    async with httpx.AsyncClient(base_url=server.address, timeout=600, limits=ONE_REQUEST_EACH) as http:
        await ask(http, server.spec, "Say hello.", 8)
        await asyncio.gather(*(client(http) for _ in range(clients)))
    return streams


def told(streams: Sequence[Stream]) -> dict[str, Any]:
    """Return the figures of a run."""
    seconds = max(one.chunks_at[-1] for one in streams) - min(one.started_at for one in streams)
    gaps = sorted(gap for one in streams for gap in one.gaps)
    firsts = sorted(one.chunks_at[0] - one.started_at for one in streams)
    num_tokens = sum(one.num_tokens for one in streams)
    return {
        "num_tokens": num_tokens,
        "seconds": seconds,
        "tokens_per_s": num_tokens / seconds,
        "gap_p50_s": gaps[len(gaps) // 2],
        "gap_p95_s": gaps[int(len(gaps) * 0.95)],
        "first_chunk_p50_s": firsts[len(firsts) // 2],
        "first_chunk_max_s": firsts[-1],
    }


async def beside_a_long_prompt(server: Server, texts: Sequence[str], long_text: str) -> dict[str, Any]:
    """Send a long prompt while four others are being answered; tell how long those waited."""
    async with httpx.AsyncClient(base_url=server.address, timeout=600, limits=ONE_REQUEST_EACH) as http:
        others = [Stream(time.perf_counter()) for _ in range(4)]
        tasks = [
            asyncio.create_task(ask(http, server.spec, text, 512, stream, ignore_eos=True, **DETAILS))
            for text, stream in zip(texts, others, strict=False)
        ]
        while min(len(one.chunks_at) for one in others) < 12:
            await asyncio.sleep(0.01)
        sent_at = time.perf_counter()
        late = await ask(http, server.spec, long_text, 4)
        first_at = late.chunks_at[0]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    rounds = median(
        gap / max(1, count)
        for one in others
        for gap, count, at in zip(one.gaps, one.rounds[1:], one.chunks_at[1:], strict=False)
        if at < sent_at
    )
    meanwhile = [
        later - sooner
        for one in others
        for sooner, later in zip(one.chunks_at, one.chunks_at[1:], strict=False)
        if sooner < first_at and later > sent_at
    ]
    return {
        "first_chunk_s": first_at - sent_at,
        "round_s": rounds,
        "longest_gap_rounds": max(meanwhile) / rounds,
        "longest_gaps_rounds": [gap / rounds for gap in sorted(meanwhile)[-5:]],
        "median_gap_rounds": median(meanwhile) / rounds,
    }


@dataclass(frozen=True, slots=True)
class Streamed:
    """A server, asked for a stream by one client; see :class:`outrider.metrics.paired.Contestant`."""

    name: str
    spec: Spec
    http: httpx.Client

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """Answer with at most ``num_tokens`` tokens."""
        body = {**streaming(self.spec, prompt, num_tokens), **DETAILS}
        token_ids: list[int] = []
        chunks: list[tuple[float, int]] = []
        account: dict[str, Any] = {}
        started_at = time.perf_counter()
        with self.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            reply.raise_for_status()
            for line in reply.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                chunk = json.loads(line[6:])
                account |= chunk
                tokens = [token["id"] for choice in chunk["choices"] for token in choice.get("token_details", ())]
                if tokens:
                    chunks.append((time.perf_counter(), len(tokens)))
                    token_ids += tokens
        counters = SpeculationCounters(
            **{
                f"num_{name}": account["speculation"][f"num_{name}"]
                for name in ("drafts", "draft_tokens", "accepted_tokens")
            }
        )
        (first_at, num_first), (last_at, _) = chunks[0], chunks[-1]
        num_prompt_tokens = account["usage"]["prompt_tokens"]
        return Answer(
            tuple(token_ids), num_prompt_tokens, first_at - started_at, last_at - first_at, counters, num_first
        )


@dataclass(frozen=True, slots=True)
class Whole:
    """Another contestant, all of whose tokens are rated, by the time from the question to the end of the answer."""

    contestant: Contestant

    @property
    def name(self) -> str:
        """The other's."""
        return self.contestant.name

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """Answer with at most ``num_tokens`` tokens."""
        started_at = time.perf_counter()
        answer = self.contestant.answer(prompt, num_tokens)
        return replace(answer, decode_s=time.perf_counter() - started_at, num_first_tokens=0)


def one_client(spec: Spec, load: Callable[[], LLM], prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Answer prompts in turns, by ``generate`` and as a stream of the server, both started several times."""
    turns: list[Turn] = []
    for start in range(STARTS):
        with Server(spec) as server, httpx.Client(base_url=server.address, timeout=600) as http:
            both = [Whole(Outrider("generate", load())), Whole(Streamed("streamed", spec, http))]
            turns += take_turns(both, prompts[start::STARTS], repeats=1, num_tokens=ONE_CLIENT_TOKENS, tell=tell)
    return summary(turns, "generate")


def long_prompt(llm: LLM, texts: Sequence[str]) -> str:
    """Return a text of about two thousand tokens."""
    text = "\n\n".join(texts)
    while len(text) < 6 * LONG_PROMPT_TOKENS:  # a token has four or five characters
        text += "\n\n" + text
    words = text[: 6 * LONG_PROMPT_TOKENS].split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (middle + 1, high)
            if len(llm.encode(" ".join(words[:middle]) or " ")) < LONG_PROMPT_TOKENS
            else (low, middle)
        )
    return " ".join(words[:low])


def long_prompts(server: Server, llm: LLM, texts: Sequence[str]) -> dict[str, Any]:
    """Send several long prompts, one after another, which begin with different texts."""
    times = []
    for number in range(LONG_PROMPTS):
        first = number % len(texts)
        turned = [*texts[first:], *texts[:first]]
        times.append(asyncio.run(beside_a_long_prompt(server, turned[1:], long_prompt(llm, turned))))
        print("longest gap", json.dumps(times[-1]["longest_gaps_rounds"]), flush=True)
    return {"longest_gap_rounds": spread([one["longest_gap_rounds"] for one in times]), "times": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", default="ngram", help="of ours; a model drafts for llama.cpp, too")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=3, help="how many questions: the size of the run")
    parser.add_argument("--num-tokens", type=int, default=96)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    add_output_arguments(parser)
    arguments = parser.parse_args()
    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    texts = [prompt.text for prompt in prompts]
    size = Size(arguments.threads, arguments.clients, CONTEXT)
    is_model = arguments.draft not in ("ngram", "auto", "none")
    specs = [
        ours("outrider plain", arguments.target, "none", size),
        ours("outrider", arguments.target, arguments.draft, size),
    ]
    program = arguments.peers / NATIVE / "bin/llama-server"
    if program.exists():
        target = locate(arguments.target)
        specs.append(llama_cpp("llama.cpp plain", program, target, None, size))
        if is_model:
            specs.append(llama_cpp("llama.cpp", program, target, locate(arguments.draft), size))
    results: dict[str, Any] = {"target": arguments.target, "draft": arguments.draft, **asdict(size), "servers": {}}
    for spec in specs:
        with Server(spec) as server:
            streams = asyncio.run(ask_all(server, texts, arguments.clients, arguments.num_tokens))
        results["servers"][spec.name] = told(streams)
        print(spec.name, json.dumps(told(streams)), flush=True)
    rates = {name: one["tokens_per_s"] for name, one in results["servers"].items()}
    theirs = [rate for name, rate in rates.items() if name.startswith("llama")]
    if theirs:
        results["to_best_llama_cpp"] = rates["outrider"] / max(theirs)

    def load() -> LLM:
        return LLM(arguments.target, arguments.draft, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)

    asked = pick(read_prompts(arguments.prompts), STARTS * arguments.per_family)
    results["one_client"] = one_client(specs[1], load, asked)
    llm = load()
    with Server(specs[1]) as server:
        results["long_prompts"] = long_prompts(server, llm, texts)
    hand_in(arguments, QUESTION, results)


if __name__ == "__main__":
    main()
