"""A request, and the state of its answer while it is being generated."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from outrider.engine.outputs import EmittedToken, FinishReason, Method
from outrider.engine.text import TextAssembler
from outrider.errors import OutriderError
from outrider.metrics import SpeculationCounters
from outrider.sampling import CompiledParams, LawShaper, SamplingParams, TokenLogprobs
from outrider.verification import CoinSource

Rule = Literal["auto", "token", "block", "coupled"]


@dataclass(frozen=True, slots=True)
class SpeculationParams:
    """What one request wants of speculation. None leaves it to the engine; the law of its text does not depend on it.

    Attributes:
        num_speculative_tokens: The most draft tokens of a round, no more than the engine's own limit; 0 for none.
        drafter: Draft with this one only, of those that the engine has.
        rule: How drafts are verified; see :mod:`outrider.engine.rules`.
    """

    num_speculative_tokens: int | None = None
    drafter: str | None = None
    rule: Rule | None = None


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
        speculation: What it wants of speculation.
    """

    request_id: Hashable
    prompt_ids: tuple[int, ...]
    compiled: CompiledParams
    seed: int
    choice: int = 0
    prediction_ids: tuple[int, ...] = ()
    speculation: SpeculationParams = SpeculationParams()

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
        prompt_logprobs: How likely each token of the prompt was, None for the first, as far as it has been read; None
            if nobody asked.
        num_cached_tokens: Of the prompt, how many it took from caches of others when it began.
        error: Why the target could not go on, if so; its finish reason says so, too.
        method: The rule that verified the last draft, once there was one.
        tree: How many tokens the largest draft that branched had at each depth.
        draft_problem: What went wrong with a draft, if anything did; the answer is none the worse for it.
        is_drafting: Whether its drafter is still asked.
        submitted_at, started_at, first_token_at, last_token_at: Seconds by the clock of whoever runs the rounds; it
            waits for its turn from the first to the second.
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
    num_cached_tokens: int = 0
    submitted_at: float = 0.0
    started_at: float | None = None
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

    @property
    def is_prompt_unread(self) -> bool:
        """Whether somebody wants to know how likely the prompt's tokens were, and some have not been looked at."""
        return self.prompt_logprobs is not None and len(self.prompt_logprobs) < len(self.request.prompt_ids)

    def fail(self, error: Exception) -> None:
        """End the answer here."""
        named = error if isinstance(error, OutriderError) else OutriderError(f"{type(error).__name__}: {error}")
        self.error, self.finish_reason = named, "error"
        if self.is_prompt_unread:
            self.prompt_logprobs = None
