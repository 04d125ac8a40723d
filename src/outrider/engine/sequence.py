"""A request, and the state of its answer while it is being generated."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from outrider.engine.outputs import EmittedToken, FinishReason, Method
from outrider.engine.text import TextAssembler
from outrider.errors import OutriderError
from outrider.metrics import SpeculationCounters
from outrider.sampling import CompiledParams, LawShaper, SamplingParams, TokenLogprobs
from outrider.verification import CoinSource


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to answer.

    Attributes:
        request_id: Its own: no other request has it, in this engine or another.
        prompt_ids: At least one token, and fewer than the target's context holds.
        compiled: How its tokens are chosen and when it ends, made ready for the target's vocabulary.
        seed: Of all its random decisions: the caller's, or fresh entropy.
        choice: Which of the ``n`` answers to its prompt this is; each has randomness of its own.
        prediction_ids: Text that the answer is expected to resemble; none if there is none.
    """

    request_id: Hashable
    prompt_ids: tuple[int, ...]
    compiled: CompiledParams
    seed: int
    choice: int = 0
    prediction_ids: tuple[int, ...] = ()

    @property
    def params(self) -> SamplingParams:
        """What the caller said."""
        return self.compiled.params


@dataclass(slots=True, eq=False)
class Sequence:
    """The state of one answer.

    Between rounds the target's cache holds every committed token but the last, whose turn it is to be fed.

    Attributes:
        cache_id: The sequence's cache in the target.
        token_ids: Prompt and answer so far: what is committed. Only :func:`~outrider.engine.commit.commit` adds to it.
        max_length: How many tokens there may be in the end, by ``max_tokens`` and by the target's context.
        shaper: Knows the answer so far; what the target's logits go through.
        prompt_logprobs: How likely each token of the prompt was, None for the first; None if nobody asked.
        error: Why the target could not go on, if so; its finish reason says so, too.
        method: The rule that verified the last draft, once there was one.
        tree: How many tokens the largest draft that branched had at each depth.
        draft_problem: What went wrong with a draft, if anything did; the answer is none the worse for it.
        is_drafting: Whether its drafter is still asked.
        started_at, first_token_at, last_token_at: Seconds by the clock of whoever runs the rounds.
    """

    request: Request
    cache_id: int
    max_length: int
    text: TextAssembler
    coins: CoinSource
    shaper: LawShaper
    token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    emitted: list[EmittedToken] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    counters: SpeculationCounters = field(default_factory=SpeculationCounters)
    error: OutriderError | None = None
    method: Method | None = None
    tree: tuple[int, ...] | None = None
    draft_problem: str | None = None
    is_drafting: bool = True
    started_at: float = 0.0
    first_token_at: float | None = None
    last_token_at: float = 0.0

    @property
    def params(self) -> SamplingParams:
        """How its tokens are chosen and when it ends."""
        return self.request.params

    @property
    def num_output_tokens(self) -> int:
        """How many tokens the answer has so far."""
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def is_new(self) -> bool:
        """Whether it has had no round yet."""
        return not self.emitted

    @property
    def num_remaining(self) -> int:
        """How many more tokens there may be."""
        return self.max_length - len(self.token_ids)

    def fail(self, error: OutriderError) -> None:
        """End the answer here."""
        self.error, self.finish_reason = error, "error"


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt in the target's cache but for its last token, for all answers to it.

    Attributes:
        cache_id: Not modified; each answer has a fork of it.
        logprobs: See :class:`Sequence`.
        error: Why no answer can be given, if so.
    """

    cache_id: int
    logprobs: list[TokenLogprobs | None] | None
    error: OutriderError | None
