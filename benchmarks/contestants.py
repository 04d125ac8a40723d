"""Who takes part in the decoding benchmarks: our engine, plain or with a drafter, and llama.cpp, asked the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.models import locate
from benchmarks.peers.llama_cpp import LlamaCpp
from outrider import LLM
from outrider.engine.contestant import Outrider
from outrider.engine.loading import load_model
from outrider.metrics.paired import Answer, Turn

CONTEXT = 4096
PLAIN = "outrider plain"


@dataclass(frozen=True, slots=True)
class Peer:
    """llama.cpp, given our very prompt tokens, with its own clock, and greedy."""

    name: str
    server: LlamaCpp
    llm: LLM

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """See :class:`outrider.metrics.paired.Contestant`."""
        return self.server.complete(self.llm.encode(prompt), num_tokens)


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


def tell(turn: Turn) -> None:
    """Print the rates of a turn."""
    rates = ", ".join(f"{name} {answer.tokens_per_s:.1f}" for name, answer in turn.answers.items())
    print(f"{turn.prompt.id}: {rates} tokens/s", flush=True)
