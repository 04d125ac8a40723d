"""Who takes part in the decoding benchmarks: our engine, plain or with a drafter, and llama.cpp, asked the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.models import locate
from benchmarks.peers.llama_cpp import LlamaCpp
from outrider import LLM, SamplingParams
from outrider.engine.loading import load_model
from outrider.metrics import SpeculationCounters

CONTEXT = 4096
PLAIN = "outrider plain"


@dataclass(frozen=True, slots=True)
class Answer:
    """One greedy answer and how long it took.

    Attributes:
        token_ids: The first comes from the pass over the prompt, the others from decoding.
        decode_s: From the first token to the last.
    """

    token_ids: tuple[int, ...]
    num_prompt_tokens: int
    prompt_s: float
    decode_s: float
    counters: SpeculationCounters = field(default_factory=SpeculationCounters)

    @property
    def num_decoded(self) -> int:
        """How many tokens ``decode_s`` is for."""
        return len(self.token_ids) - 1

    @property
    def tokens_per_s(self) -> float:
        """The rate of decoding; 0 for an answer of one token."""
        return self.num_decoded / self.decode_s if self.num_decoded else 0.0


class Contestant(Protocol):
    """Answers a prompt, in the model's chat template, greedily, up to its end-of-sequence token."""

    @property
    def name(self) -> str:
        """How the tables call it."""

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """Answer with at most ``num_tokens`` tokens."""


@dataclass(frozen=True, slots=True)
class Outrider:
    """Our engine through its front door."""

    name: str
    llm: LLM

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """See :class:`Contestant`."""
        output = self.llm.generate(prompt, SamplingParams(max_tokens=num_tokens))[0]
        return Answer(
            output.token_ids,
            output.usage.prompt_tokens,
            output.timing.prefill_s,
            output.timing.decode_s,
            output.speculation.counters,
        )


@dataclass(frozen=True, slots=True)
class Peer:
    """llama.cpp, given our very prompt tokens, with its own clock."""

    name: str
    server: LlamaCpp
    llm: LLM

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """See :class:`Contestant`."""
        completion = self.server.complete(self.llm.encode(prompt), num_tokens)
        return Answer(
            completion.token_ids,
            completion.num_prompt_tokens,
            completion.prompt_s,
            completion.decode_s,
            SpeculationCounters(
                num_draft_tokens=completion.num_draft_tokens, num_accepted_tokens=completion.num_accepted_tokens
            ),
        )


def load_contestants(
    target: str, draft: str | None, draft_lengths: Sequence[int], threads: int, *, ngram: bool
) -> list[Outrider]:
    """Load our engine: plain first, then the draft model alone by length, then n-gram drafts if wanted."""
    model = load_model(target, threads=threads, ctx_size=CONTEXT, resolver=locate)
    contestants = [Outrider(PLAIN, LLM(model))]
    for k in draft_lengths if draft is not None else ():
        alone = LLM(model, [draft], num_speculative_tokens=k, threads=threads, resolver=locate)
        contestants.append(Outrider(f"outrider draft {k}", alone))
    if ngram:
        contestants.append(Outrider("outrider ngram", LLM(model, "ngram")))
    return contestants
