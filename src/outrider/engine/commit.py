"""What a round emits. Nothing else in the engine decides that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from outrider.engine.outputs import EmittedToken, Origin
from outrider.engine.sequence import Sequence
from outrider.errors import OutriderError
from outrider.sampling import TargetLaw
from outrider.types import Outcome, Proposal, Verdict


@dataclass(frozen=True, slots=True)
class Halt:
    """A round that verification could not finish.

    Attributes:
        path: The draft tokens accepted before.
        error: What is wrong with the target's law after them.
    """

    path: tuple[int, ...]
    error: OutriderError


_ORIGINS = {Outcome.RECOVERED: Origin.RECOVERED, Outcome.BONUS: Origin.BONUS}


def commit(
    sequence: Sequence, draft: Proposal, verdict: Verdict | Halt, law: TargetLaw, eos_ids: Collection[int]
) -> tuple[EmittedToken, ...]:
    """Add a verified round to a sequence, token by token, up to the token that ends the answer.

    Going token by token makes an answer what plain decoding gives: an end-of-sequence or stop token, a stop string,
    the last of ``max_tokens`` or the end of the context ends it on the spot, and whatever the round holds beyond is
    discarded, the bonus token and an error included.

    Args:
        sequence: Its tokens, text, counters and what else depends on its tokens are brought up to date.
        draft: What was proposed, a chain or a tree.
        verdict: What verification made of it.
        law: The target's at the positions of the round.
        eos_ids: The model's end-of-sequence tokens.

    Returns:
        The tokens emitted; at least one, but for an error.
    """
    sources = [draft.sources[node] if draft.sources else None for node in verdict.path]
    tokens = [(draft.token_ids[node], Origin.ACCEPTED) for node in verdict.path]
    if not isinstance(verdict, Halt):
        tokens.append((verdict.next_token_id, _ORIGINS[verdict.outcome] if len(draft) else Origin.PLAIN))
    emitted: list[EmittedToken] = []
    for (token_id, origin), node, source in zip(tokens, (-1, *verdict.path), (*sources, None), strict=False):
        sequence.token_ids.append(token_id)
        text = _add_text(sequence, token_id, is_end=_is_end(token_id, sequence, eos_ids))
        emitted.append(EmittedToken(token_id, origin, text, law.logprobs(node + 1, token_id), source))
        if sequence.finish_reason is not None:
            break
        try:
            sequence.shaper.advance(token_id)
        except OutriderError as error:  # the grammar has become too complex to go on
            sequence.fail(error)
            break
    else:
        if isinstance(verdict, Halt):
            sequence.fail(verdict.error)
    _count(sequence, draft, verdict, len(emitted))
    sequence.emitted += emitted
    return tuple(emitted)


def _count(sequence: Sequence, draft: Proposal, verdict: Verdict | Halt, num_emitted: int) -> None:
    """Count a round: an answer that ends within the accepted tokens says nothing of the draft tokens beyond."""
    sources = draft.sources
    if isinstance(verdict, Halt) or num_emitted <= len(verdict.path):
        sequence.counters.observe(num_emitted, num_emitted, method=sequence.method)
        sources = tuple(sources[node] for node in verdict.path[:num_emitted]) if sources else ()
        sequence.counters.observe_sources(sources, sources)
    else:
        sequence.counters.observe_sources(sources, [sources[node] for node in verdict.path if sources])
        was_rejected = verdict.outcome is Outcome.RECOVERED
        sequence.counters.observe(
            len(draft), len(verdict.path), depth=draft.depth, was_rejected=was_rejected, method=sequence.method
        )


def _is_end(token_id: int, sequence: Sequence, eos_ids: Collection[int]) -> bool:
    is_eos = token_id in eos_ids and not sequence.params.ignore_eos
    return is_eos or token_id in sequence.params.stop_token_ids


def _add_text(sequence: Sequence, token_id: int, *, is_end: bool) -> str:
    """Return what a token makes certain of the text; if the answer ends with it, all that is left, and note why."""
    text, params = sequence.text, sequence.params
    may_stop = sequence.num_output_tokens > params.min_tokens
    added = "" if is_end else text.add(token_id, may_stop=may_stop)
    if is_end or text.is_stopped or sequence.num_remaining == 0:
        added += text.finish(may_stop=may_stop)  # which may complete a stop string, too
        sequence.finish_reason = "stop" if is_end or text.is_stopped else "length"
    return added
