"""What a round emits. Nothing else in the engine decides that."""

from __future__ import annotations

from collections.abc import Collection

from outrider.engine.outputs import EmittedToken, Origin
from outrider.engine.sequence import Sequence
from outrider.sampling import TargetLaw
from outrider.types import Draft, Outcome, VerificationResult

_ORIGINS = {Outcome.RECOVERED: Origin.RECOVERED, Outcome.BONUS: Origin.BONUS}


def commit(
    sequence: Sequence, draft: Draft, result: VerificationResult, law: TargetLaw, eos_ids: Collection[int]
) -> tuple[EmittedToken, ...]:
    """Add a verified round to a sequence, token by token, up to the token that ends the answer.

    Going token by token makes an answer what plain decoding gives: an end-of-sequence or stop token, a stop string,
    the last of ``max_tokens`` or the end of the context ends it on the spot, and whatever the round holds beyond is
    discarded, the bonus token included.

    Args:
        sequence: Its tokens, text, counters and what else depends on its tokens are brought up to date.
        draft: What was proposed.
        result: What verification made of it.
        law: The target's at the positions of the round.
        eos_ids: The model's end-of-sequence tokens.

    Returns:
        The tokens emitted; at least one.
    """
    last_origin = _ORIGINS[result.outcome] if len(draft) else Origin.PLAIN
    tokens = [(token_id, Origin.ACCEPTED) for token_id in draft.token_ids[: result.num_accepted]]
    tokens.append((result.next_token_id, last_origin))
    emitted: list[EmittedToken] = []
    for row, (token_id, origin) in enumerate(tokens):
        sequence.token_ids.append(token_id)
        sequence.shaper.advance(token_id)
        text = _add_text(sequence, token_id, is_end=_is_end(token_id, sequence, eos_ids))
        emitted.append(EmittedToken(token_id, origin, text, law.logprobs(row, token_id)))
        if sequence.finish_reason is not None:
            break
    num_accepted = min(len(emitted), result.num_accepted)
    # An answer that ends within the accepted tokens says nothing of the draft tokens beyond.
    sequence.counters.observe(len(draft) if len(emitted) > num_accepted else num_accepted, num_accepted)
    sequence.emitted += emitted
    return tuple(emitted)


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
