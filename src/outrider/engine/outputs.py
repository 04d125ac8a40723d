"""What a caller gets back: tokens as they come, and the whole answer with an account of how it was made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, Literal

from outrider.errors import OutriderError
from outrider.metrics import SourceCounts, SpeculationCounters, acceptance_rate, mean_acceptance_length
from outrider.sampling import TokenLogprobs

FinishReason = Literal["stop", "length", "error"]
Method = Literal["greedy", "token", "block", "point_mass", "multi_draft", "coupled"]


class Origin(Enum):
    """How a token came about; see :mod:`outrider.types` for the terms."""

    ACCEPTED = "accepted"
    RECOVERED = "recovered"
    BONUS = "bonus"
    PLAIN = "plain"  # from a round without a draft


@dataclass(frozen=True, slots=True)
class EmittedToken:
    """One token of an answer.

    Attributes:
        token_id: Its id.
        origin: How it came about.
        text: What it made certain of the text. Empty while a character or a possible stop string is unfinished, and
            for control tokens; the texts of all tokens joined are the text of the answer.
        logprobs: How likely it was; None if nobody asked.
        source: What proposed it, if it was accepted of a draft that several drafters may have had a part in.
    """

    token_id: int
    origin: Origin
    text: str
    logprobs: TokenLogprobs | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens counted as the model sees them: chat template and end-of-sequence tokens included.

    Attributes:
        cached_tokens: Of the prompt, how many had been read for other requests that begin alike.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculation did for one answer.

    Attributes:
        active: Whether drafts were asked for.
        reason: In words, why speculation was on or off, and the problem if there was any.
        drafter: The drafter's name, or None.
        tree: How many draft tokens the largest draft that branched had at each depth; None if none did.
        counters: Draft tokens beyond the end of the answer are not counted: they were neither accepted nor rejected.
        problem: In words, what went wrong with a draft or with the store; None if nothing did.
    """

    active: bool
    reason: str
    drafter: str | None = None
    tree: tuple[int, ...] | None = None
    counters: SpeculationCounters = field(default_factory=SpeculationCounters)
    problem: str | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted by drafted tokens; None without any."""
        return acceptance_rate(self.counters)

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens per round that had a draft; None without any."""
        return mean_acceptance_length(self.counters)

    @property
    def method(self) -> str | None:
        """The rule that verified most of the drafts, the first of those on a tie; None if there was none to verify."""
        methods = self.counters.methods
        return max(methods, key=lambda name: methods[name], default=None)

    @property
    def accepted_prediction_tokens(self) -> int:
        """How many tokens of the text that the caller predicted were drafted and accepted."""
        return self.counters.sources.get("prediction", SourceCounts()).num_accepted_tokens

    @property
    def rejected_prediction_tokens(self) -> int:
        """How many of them were drafted and not accepted."""
        drafted = self.counters.sources.get("prediction", SourceCounts()).num_draft_tokens
        return drafted - self.accepted_prediction_tokens

    def to_json(self) -> dict[str, Any]:
        """Return the ``speculation`` object of the result document."""
        return {
            "active": self.active,
            "reason": self.reason,
            "drafter": self.drafter,
            "method": self.method,
            "methods": dict(self.counters.methods),
            "tree": None if self.tree is None else list(self.tree),
            "num_drafts": self.counters.num_drafts,
            "num_draft_tokens": self.counters.num_draft_tokens,
            "num_accepted_tokens": self.counters.num_accepted_tokens,
            "num_accepted_tokens_per_pos": list(self.counters.num_accepted_tokens_per_pos),
            "acceptance_rate": self.acceptance_rate,
            "mean_acceptance_length": self.mean_acceptance_length,
            "sources": {name: asdict(counts) for name, counts in self.counters.sources.items()},
            "accepted_prediction_tokens": self.accepted_prediction_tokens,
            "rejected_prediction_tokens": self.rejected_prediction_tokens,
        }


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time went, in seconds.

    Attributes:
        load_s: Loading the models; the same in every answer of one ``LLM``.
        prefill_s: From the start of the request to its first token.
        decode_s: From the first token to the last; the draft model's reading of the prompt falls in here.
        tokens_per_s: Tokens after the first, by ``decode_s``; None for an answer of one token.
    """

    load_s: float
    prefill_s: float
    decode_s: float
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """One whole answer.

    Attributes:
        text: Without control tokens and without the stop string that ended it.
        token_ids: Everything generated, an end-of-sequence token and the tokens of a stop string included.
        finish_reason: ``"stop"``: the model ended the text or a stop string did. ``"length"``: ``max_tokens`` or the
            context was used up. ``"error"``: the target could not go on; what it had said before stands.
        error: Why not; None otherwise.
        logprobs: How likely each token was; None if nobody asked.
        prompt_logprobs: The same for the tokens of the prompt, with None for the first.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    speculation: Speculation
    timing: Timing
    logprobs: tuple[TokenLogprobs, ...] | None = None
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    error: OutriderError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result document that ``outrider generate --json`` prints; ``error`` only where there is one."""
        return {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            **({} if self.error is None else {"error": str(self.error)}),
            "usage": asdict(self.usage),
            "speculation": self.speculation.to_json(),
            "timing": asdict(self.timing),
        }


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """What one round added to an answer.

    Attributes:
        tokens: At least one, but for a last chunk that tells of an error.
        output: The whole answer, in the last chunk only.
    """

    tokens: tuple[EmittedToken, ...]
    output: GenerationOutput | None = None

    @property
    def text(self) -> str:
        """What the round made certain of the text."""
        return "".join(token.text for token in self.tokens)
