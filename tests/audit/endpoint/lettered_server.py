"""A server of a toy model, behind the contract of those who answer and behind HTTP, right or wrong as a test wants it.

The model says the letters a to h and a full stop, which ends an answer. What comes next depends on the letters so far
through a hash, so the law is known. Speculation is that of a draft which likes other tokens, verified by the textbook's
rule or by a wrong one.
"""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Lock, Thread
from time import sleep

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from outrider.audit.endpoint.questions import Answer, Place, Question
from outrider.backends.toy import HashLM

LETTERS = "abcdefgh."
END = LETTERS.index(".")
PROMPTS = ("ab", "cad", "face")
_TARGET = HashLM(len(LETTERS), seed=1, max_weight=40)
_DRAFT = HashLM(len(LETTERS), seed=2, max_weight=40)
K = 3


@lru_cache(maxsize=100_000)
def target_law(ids):
    weights = _TARGET.weights(ids)
    return tuple(weight / sum(weights) for weight in weights)


@lru_cache(maxsize=100_000)
def draft_law(ids):
    """Return a law that lies half way to another model's."""
    weights = _DRAFT.weights(ids)
    return tuple(weight / sum(weights) / 2 + prob / 2 for weight, prob in zip(weights, target_law(ids), strict=True))


def shaped(law, ids, prompt_length, question):
    """Apply temperature and penalties."""
    out = ids[prompt_length:]
    logits = [math.log(prob) for prob in law]
    for token in set(out):
        logits[token] -= (question.presence_penalty or 0) + (question.frequency_penalty or 0) * out.count(token)
    if question.temperature == 0:
        best = max(range(len(logits)), key=logits.__getitem__)
        return tuple(float(token == best) for token in range(len(logits))), logits
    total = sum(map(math.exp, logits))
    return tuple(math.exp(logit) / total for logit in logits), logits


@dataclass
class ToyModel:
    """Answers questions; an ``Asker``.

    Attributes:
        faults: What is wrong with its speculation: ``"residual"`` (a rejected token is replaced by a draw from the
            target's law), ``"draft"`` (greedy drafts are never checked), ``"penalty"`` (penalties are ignored),
            ``"stale"`` (they count the tokens before the round only), ``"raw"`` (logprobs are those before penalties,
            which is no fault), ``"overrun"`` (max_tokens and stop are looked at once a round), ``"logprobs"`` (0 for
            accepted tokens), ``"none"`` (no logprobs), ``"seed"`` (seeds are ignored), ``"frozen"`` (the same random
            numbers for each request), ``"impossible"`` (some answers hold a token that cannot be).
        speculates: Whether it drafts at all.
    """

    faults: tuple[str, ...] = ()
    speculates: bool = True
    seed: int = 0
    name: str = "toy"
    asked: list = field(default_factory=list)

    def __post_init__(self):
        self._rng = random.Random(self.seed)
        self._lock = Lock()

    def ask_many(self, questions):
        return [self.ask(question) for question in questions]

    def ask(self, question):
        with self._lock:
            self.asked.append(question)
            entropy = 0 if "frozen" in self.faults else self._rng.getrandbits(64)
        seeded = question.seed is not None and "seed" not in self.faults
        return self._answer(question, random.Random(question.seed if seeded else entropy))

    def law(self, ids, prompt_length, question):
        return shaped(target_law(ids), ids, prompt_length, question)

    def _answer(self, question, rng):
        prompt = tuple(LETTERS.index(char) for char in question.prompt if char in LETTERS)
        ids, accepted = prompt, []
        if "penalty" in self.faults:
            question = _without_penalties(question)
        while not self._is_done(question, ids[len(prompt) :]):
            fresh, num_accepted = self._round(question, ids, len(prompt), rng)
            for place, token in enumerate(fresh):
                ids = (*ids, token)
                accepted.append(place < num_accepted)
                if "overrun" not in self.faults and self._is_done(question, ids[len(prompt) :]):
                    break
        return self._reply(question, prompt, ids[len(prompt) :], accepted)

    def _is_done(self, question, out):
        text = "".join(LETTERS[token] for token in out)
        return len(out) >= question.max_tokens or END in out or (question.stop is not None and question.stop in text)

    def _round(self, question, ids, prompt_length, rng):
        num_drafted = K if self.speculates and len(ids) > prompt_length else 0  # as many engines: the first is plain
        drafted = []
        for _ in range(num_drafted):
            now = (*ids, *drafted)
            law = shaped(draft_law(now), now, prompt_length, question)[0]
            drafted.append(rng.choices(range(len(law)), law)[0])
        for place, token in enumerate(drafted):
            now = (*ids, *drafted[:place])
            target, draft = (
                shaped(target_law(now), ids if "stale" in self.faults else now, prompt_length, question)[0],
                shaped(draft_law(now), now, prompt_length, question)[0],
            )
            is_accepted = rng.random() * draft[token] < target[token]
            if question.temperature == 0 and "draft" in self.faults:
                is_accepted = True
            if not is_accepted:
                residual = [max(one - other, 0.0) for one, other in zip(target, draft, strict=True)]
                weights = target if "residual" in self.faults else residual
                return [*drafted[:place], rng.choices(range(len(target)), weights)[0]], place
        law = self.law((*ids, *drafted), prompt_length, question)[0]
        return [*drafted, rng.choices(range(len(law)), law)[0]], len(drafted)

    def _reply(self, question, prompt, out, accepted):
        text = "".join(LETTERS[token] for token in out)
        reason = "stop" if END in out else "length"
        if question.stop is not None and question.stop in text and "overrun" not in self.faults:
            text, reason = text[: text.index(question.stop)], "stop"
        places = None
        if question.logprobs is not None and "none" not in self.faults:
            places = tuple(
                self._place(question, prompt + out[:index], len(prompt), token, accepted[index])
                for index, token in enumerate(out)
            )
        return Answer(text.rstrip("."), places, reason, len(prompt), len(out))

    def _place(self, question, ids, prompt_length, token, is_accepted):
        asked = _without_penalties(question) if "raw" in self.faults else question
        logits = self.law(ids, prompt_length, asked)[1]
        total = math.log(sum(map(math.exp, logits)))
        values = {letter: logit - total for letter, logit in zip(LETTERS, logits, strict=True)}
        if "logprobs" in self.faults and is_accepted:
            return Place(LETTERS[token], 0.0)
        if "impossible" in self.faults and len(ids) == prompt_length + 3:
            return Place(LETTERS[token], -80.0, values)
        top = sorted(values.items(), key=lambda item: -item[1])[: question.logprobs]
        return Place(LETTERS[token], values[LETTERS[token]], dict(top))


def _without_penalties(question):
    return replace(question, presence_penalty=None, frequency_penalty=None)


class Web:
    """A toy model behind HTTP, with what may be wrong with a server.

    Attributes:
        chat_only: There are no plain completions.
        script: What the next requests are answered instead: a response, or a number of seconds to wait.
        seen: The bodies of all requests, and their keys.
    """

    def __init__(self, model, *, chat_only=False, most_logprobs=None):
        self.model = model
        self.chat_only, self.most_logprobs = chat_only, most_logprobs
        self.script, self.seen, self.keys = [], [], []

    def app(self):
        return Starlette(
            routes=[
                Route("/v1/models", self._models),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/chat/completions", self._chats, methods=["POST"]),
            ]
        )

    def _models(self, request):
        return JSONResponse({"object": "list", "data": [{"id": "toy-model", "object": "model"}]})

    async def _completions(self, request):
        return await self._answer(request, chat=False)

    async def _chats(self, request):
        return await self._answer(request, chat=True)

    async def _answer(self, request, *, chat):
        body = await request.json()
        self.seen.append(body)
        self.keys.append(request.headers.get("authorization"))
        if self.script:
            scripted = self.script.pop(0)
            if isinstance(scripted, Response):
                return scripted
            sleep(scripted)
        if self.chat_only and not chat:
            return JSONResponse({"error": {"message": "no such route"}}, 404)
        wanted = body.get("top_logprobs") if chat else body.get("logprobs")
        if self.most_logprobs is not None and (wanted or 0) > self.most_logprobs:
            return JSONResponse({"error": {"message": f"logprobs: at most {self.most_logprobs}"}}, 400)
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        fields = {
            name: body[name] for name in ("seed", "stop", "presence_penalty", "frequency_penalty") if name in body
        }
        question = Question(prompt, body["max_tokens"], body["temperature"], logprobs=wanted, **fields)
        return JSONResponse(wire(self.model.ask(question), chat=chat))


def wire(answer, *, chat):
    """Return an answer as OpenAI's servers write it."""
    choice = {"index": 0, "finish_reason": answer.finish_reason, "logprobs": None}
    places = answer.places
    if chat:
        choice["message"] = {"role": "assistant", "content": answer.text}
        if places is not None:
            choice["logprobs"] = {"content": [_chat_place(place) for place in places]}
    else:
        choice["text"] = answer.text
        if places is not None:
            choice["logprobs"] = {
                "tokens": [place.token for place in places],
                "token_logprobs": [place.logprob for place in places],
                "top_logprobs": [dict(place.top) or None for place in places],
            }
    usage = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    return {"object": "chat.completion" if chat else "text_completion", "choices": [choice], "usage": usage}


def _chat_place(place):
    top = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in place.top.items()]
    return {"token": place.token, "logprob": place.logprob, "bytes": None, "top_logprobs": top}


@contextmanager
def serving(web):
    """Serve on loopback; yield the base URL."""
    server = uvicorn.Server(uvicorn.Config(web.app(), host="127.0.0.1", port=0, log_level="error", lifespan="off"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.should_exit = True
        thread.join()
