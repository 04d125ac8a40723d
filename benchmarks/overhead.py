"""What share of a round is spent outside the forward passes, for each setting and verification rule?

    python -m benchmarks.overhead --target T --draft D --out R.json
    python -m benchmarks.overhead --target T --draft D --settings everything --rules block coupled

The draft is compressed, as it is by default; ``--draft-as-file`` leaves it as its file has it. The engine answers
prompts with drafts of full length. Both models' passes are timed where the engine calls them; what is left of a round
is overhead: laws, draws, verification, commit, text. Rounds with the prompt in them are left out. Cases take turns on
every prompt.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from benchmarks.contestants import CONTEXT
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, Prompt, pick, read_prompts
from outrider import LLM, SamplingParams
from outrider.backends.base import Backend, Rows
from outrider.drafters.compression import DraftOptions
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.loading import Model, load_pair
from outrider.metrics.spread import spread
from outrider.types import Logits

QUESTION = "What share of a round is spent outside the forward passes, for each setting and verification rule?"
_EVERY_LIMIT = SamplingParams(temperature=1.0, top_k=200, top_p=0.95, min_p=0.001, typical_p=0.95)
# An answer that goes on for as long as it is timed.
_SCHEMA = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": {"type": "string"}, "minItems": 32}},
    "required": ["steps"],
    "additionalProperties": False,
}
_STEPS = {"type": "json_schema", "json_schema": {"schema": _SCHEMA}}
SETTINGS = {
    "greedy": SamplingParams(),
    "temperature 1": SamplingParams(temperature=1.0),
    "top_p 0.95": SamplingParams(temperature=1.0, top_p=0.95),
    "typical_p 0.95": SamplingParams(temperature=1.0, typical_p=0.95),
    "everything": replace(
        _EVERY_LIMIT,
        repetition_penalty=1.05,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        logit_bias={1000 + token_id: 0.5 for token_id in range(50)},
        bad_words=("Certainly", "delve"),
        min_tokens=16,
        logprobs=5,
    ),
    "grammar": SamplingParams(temperature=1.0, response_format=_STEPS),
}
RULES = ("token", "block", "coupled")


class Timed:
    """A backend that adds up how long its passes take; everything else is the other's."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.vocab_size = backend.vocab_size
        self.max_length = backend.max_length
        self.open_sequence = backend.open_sequence
        self.close_sequence = backend.close_sequence
        self.length = backend.length
        self.crop = backend.crop
        self.fork = backend.fork
        self.keep_path = backend.keep_path
        self.seconds = 0.0

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """See :class:`~outrider.backends.base.Backend`."""
        started_at = time.perf_counter()
        logits = self._backend.forward(batch)
        self.seconds += time.perf_counter() - started_at
        return logits


@dataclass(frozen=True, slots=True)
class Round:
    """Where the time of one round went, in seconds."""

    target: float
    draft: float
    other: float

    @property
    def share(self) -> float:
        """Of everything but forward passes."""
        return self.other / (self.target + self.draft + self.other)


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
    parser.add_argument("--draft-as-file", action="store_true", help="do not compress the draft")
    parser.add_argument("--num-speculative-tokens", type=int, default=8)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=1)
    parser.add_argument("--num-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    target, (part,) = load_pair(
        arguments.target,
        [arguments.draft],
        DraftOptions(weights="file", vocab=None) if arguments.draft_as_file else None,
        threads=arguments.threads,
        ctx_size=CONTEXT,
        resolver=locate,
    )
    if part.backend is None:
        parser.error(f"--draft is {arguments.draft!r}; it must be a draft model")
    pair = Pair(target, part.backend, part.drafter.name, arguments.num_speculative_tokens)
    cases = [(setting, rule) for setting in arguments.settings for rule in arguments.rules if setting != "greedy"] + [
        ("greedy", "token")
    ] * ("greedy" in arguments.settings)
    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    rounds: dict[tuple[str, str], list[Round]] = {case: [] for case in cases}
    for prompt in prompts:
        for setting, rule in cases:
            params = replace(SETTINGS[setting], max_tokens=arguments.num_tokens)
            rounds[setting, rule] += pair.rounds(prompt, params, rule)
        print(prompt.id, flush=True)
    table: dict[str, dict[str, object]] = {}
    for (setting, rule), own in rounds.items():
        table.setdefault(setting, {})[rule if setting != "greedy" else "greedy"] = row(own)
    settings = {name: getattr(arguments, name) for name in ("target", "draft", "threads", "num_speculative_tokens")}
    hand_in(arguments, QUESTION, {**settings, "drafter": pair.draft_name, "rounds": table})


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models, and how many tokens the smaller drafts a round, whatever it thinks of them."""

    target: Model
    draft: Backend
    draft_name: str
    num_speculative_tokens: int

    def rounds(self, prompt: Prompt, params: SamplingParams, rule: str) -> list[Round]:
        """Answer a prompt and return its rounds, but for the one that reads the prompt."""
        timed, timed_draft = Timed(self.target.backend), Timed(self.draft)
        llm = LLM(
            replace(self.target, backend=timed),
            DraftModelDrafter(timed_draft, vocab_size=self.target.vocab_size, name=self.draft_name),
            num_speculative_tokens=self.num_speculative_tokens,
            rule=rule,
            entropy=lambda: len(prompt.text),
        )
        chunks = llm.stream(prompt.text, params)
        marks = [(time.perf_counter(), timed.seconds, timed_draft.seconds) for _ in chunks]
        rounds = []
        for before, after in pairwise(marks):
            whole, passes, draft_passes = (late - early for early, late in zip(before, after, strict=True))
            rounds.append(Round(passes, draft_passes, whole - passes - draft_passes))
        return rounds


def row(rounds: Sequence[Round]) -> Mapping[str, object]:
    """Return what is published of one case: milliseconds a round, and the share of what is not a pass."""
    total = sum(one.target + one.draft + one.other for one in rounds)
    return {
        "target_ms": spread([1e3 * one.target for one in rounds]),
        "draft_ms": spread([1e3 * one.draft for one in rounds]),
        "other_ms": spread([1e3 * one.other for one in rounds]),
        "share": spread([one.share for one in rounds]),
        "share_of_all_time": sum(one.other for one in rounds) / total,
    }


if __name__ == "__main__":
    main()
