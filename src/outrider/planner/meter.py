"""What a choice does on a target's own text, round by round."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace

import numpy as np

from outrider.backends.base import Backend, Rows
from outrider.backends.metered import MeteredBackend, Pass
from outrider.backends.prefill import PIECE
from outrider.drafters.base import Drafter
from outrider.engine.loading import Model
from outrider.engine.rules import reads_laws
from outrider.engine.sequence import Request, Rule, Sequence
from outrider.engine.step import Stepper
from outrider.planner.recorded import Hindsight, RecordedBackend, Recording
from outrider.sampling import CompiledParams, LawShaper
from outrider.sampling.distribution import token_law
from outrider.types import Weights

_ROWS = 32  # of logits at a time: 20 MB for a vocabulary of 150,000


@dataclass(frozen=True, slots=True)
class Prompted:
    """A prompt as the target reads it.

    Attributes:
        id, family: Of the prompt.
        token_ids: At least one, and fewer than the context holds.
    """

    id: str
    family: str | None
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One round of an answer.

    Attributes:
        length: How many tokens the target's cache held before it.
        num_draft_tokens: How many were proposed; in a tree, in all branches.
        num_accepted: How many of them the text goes on with.
        num_emitted: Tokens added to the answer: one more, unless the answer ended before.
        draft_passes: What drafting them took.
        other_s: Seconds that were spent neither in those nor in the target's pass.
    """

    length: int
    num_draft_tokens: int
    num_accepted: int
    num_emitted: int
    draft_passes: tuple[Pass, ...]
    other_s: float


@dataclass(frozen=True, slots=True)
class Setting:
    """How text is made, whatever drafts for it.

    Attributes:
        target: Whose text it is.
        compiled: How its tokens are chosen.
        clock: Seconds from any fixed moment.
    """

    target: Model
    compiled: CompiledParams
    clock: Callable[[], float]


@dataclass(frozen=True, slots=True)
class Drafting:
    """What drafts, and how that is verified; see ``LLM``.

    Attributes:
        backends: The models that the drafter runs on.
    """

    drafter: Drafter | None = None
    num_speculative_tokens: int = 0
    draft_tree: int = 0
    rule: Rule = "auto"
    backends: tuple[MeteredBackend, ...] = ()


NO_DRAFTING = Drafting(rule="coupled")


def replay(setting: Setting, recording: Recording, drafting: Drafting) -> list[Round]:
    """Answer a prompt again as the engine would, without passes of the target, and return the rounds after the first.

    The first reads the prompt and has no draft. Rounds are those of the engine's own :class:`Stepper`.
    """
    backend = setting.target.backend
    again = RecordedBackend(recording, vocab_size=backend.vocab_size, max_length=backend.max_length)
    target = MeteredBackend(again, setting.target.name, setting.clock)
    params = replace(setting.compiled.params, logprobs=None, prompt_logprobs=None)
    compiled = replace(setting.compiled, params=params)
    stepper = stepper_of(setting, target, drafting)
    sequence = stepper.open(Request(object(), recording.prompt_ids, compiled, recording.seed))
    if reads_laws(params, drafting.rule):
        sequence.coins = Hindsight(recording.seed, recording=recording, is_block=drafting.rule != "token")
    try:
        rounds = []
        while sequence.finish_reason is None:
            rounds.append(metered_round(setting, stepper, sequence, [target, *drafting.backends])[0])
        answer_ids = tuple(sequence.token_ids[len(recording.prompt_ids) :])
        if answer_ids != recording.answer_ids:
            raise AssertionError(f"replayed {answer_ids} where the target had said {recording.answer_ids}")
        return rounds[1:]
    finally:
        stepper.close(sequence)


def metered_round(
    setting: Setting, stepper: Stepper, sequence: Sequence, backends: Several[MeteredBackend]
) -> tuple[Round, tuple[Pass, ...]]:
    """Run one round of a sequence; return what it was, and the target's passes.

    Args:
        setting: How text is made.
        stepper: What runs the round.
        sequence: Of the stepper, not ended.
        backends: The target's, then those of the drafter's models.
    """
    for backend in backends:
        backend.passes.clear()
    length, accepted_before = len(sequence.token_ids) - 1, sequence.counters.num_accepted_tokens
    started_at = setting.clock()
    [emitted] = stepper.step([sequence])
    seconds = setting.clock() - started_at
    target, *drafts = backends
    passes = [one for backend in backends for one in backend.passes]
    done = Round(
        length=length,
        num_draft_tokens=target.passes[-1].rows - 1,
        num_accepted=sequence.counters.num_accepted_tokens - accepted_before,
        num_emitted=len(emitted),
        draft_passes=tuple(one for backend in drafts for one in backend.passes),
        other_s=max(0.0, seconds - sum(one.seconds for one in passes)),
    )
    return done, tuple(target.passes)


def record(
    setting: Setting, prompt: Prompted, seed: int, drafting: Drafting = NO_DRAFTING
) -> tuple[Recording, list[tuple[Round, tuple[Pass, ...]]]]:
    """Let the target answer a prompt once, for every choice to be measured on.

    Args:
        setting: How.
        prompt: To what.
        seed: Of the noise that draws the answer; the same answer comes of it whatever drafts.
        drafting: What speeds this up, by a rule that leaves the answer to the noise.

    Returns:
        The answer, and its rounds after the first with the target's passes.

    Raises:
        OutriderError: The target cannot go on.
    """
    target = MeteredBackend(setting.target.backend, setting.target.name, setting.clock)
    stepper = stepper_of(setting, target, drafting)
    sequence = stepper.open(Request(object(), prompt.token_ids, setting.compiled, seed))
    rounds = []
    try:
        stepper.step([sequence])
        while sequence.finish_reason is None:
            rounds.append(metered_round(setting, stepper, sequence, [target, *drafting.backends]))
    finally:
        stepper.close(sequence)
    if sequence.error is not None:
        raise sequence.error
    answer_ids = tuple(sequence.token_ids[len(prompt.token_ids) :])
    recording = Recording(prompt.id, prompt.family, prompt.token_ids, answer_ids, seed=seed)
    if not setting.compiled.params.is_greedy:
        recording = replace(recording, laws=_laws(setting, recording))
    return recording, rounds


def _laws(setting: Setting, recording: Recording) -> tuple[Weights, ...]:
    """Return the law of each token of an answer, by passes over all of it."""
    backend, vocab_size = setting.target.backend, setting.target.vocab_size
    shaper = LawShaper(setting.compiled, recording.prompt_ids)
    fed = [*recording.prompt_ids, *recording.answer_ids[:-1]]
    first = len(recording.prompt_ids) - 1
    cache_id = backend.open_sequence()
    try:
        while (start := backend.length(cache_id)) < first:
            backend.forward([Rows(cache_id, fed[start : min(start + PIECE, first)], num_logits=0)])
        laws: list[Weights] = []
        for start in range(first, len(fed), _ROWS):
            rows = fed[start : start + _ROWS]
            for row in backend.forward([Rows(cache_id, rows, num_logits=len(rows))])[:, :vocab_size]:
                laws.append(token_law(shaper.shape(row[np.newaxis], ())[0], shaper.params))
                shaper.advance(recording.answer_ids[len(laws) - 1])
        return tuple(laws)
    finally:
        backend.close_sequence(cache_id)


def stepper_of(setting: Setting, backend: Backend, drafting: Drafting) -> Stepper:
    """Return what runs rounds as the engine does, on the target or on what stands for it."""
    target, limit = setting.target, drafting.num_speculative_tokens
    return Stepper(
        target=backend,
        vocab_size=target.vocab_size,
        eos_ids=target.tokenizer.eos_ids,
        detokenizer=target.tokenizer,
        drafter=drafting.drafter if limit else None,
        num_speculative_tokens=limit,
        max_tree_tokens=max(limit, drafting.draft_tree),
        rule=drafting.rule,
    )
