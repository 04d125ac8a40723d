"""What a round emits. Nothing else in the engine decides that."""

from __future__ import annotations

from collections.abc import Collection

from outrider.engine.outputs import EmittedToken, FinishReason, Origin
from outrider.engine.sequence import Sequence
from outrider.types import Draft, Outcome, VerificationResult

_ORIGINS = {Outcome.RECOVERED: Origin.RECOVERED, Outcome.BONUS: Origin.BONUS}


def commit(
    sequence: Sequence, draft: Draft, result: VerificationResult, eos_ids: Collection[int]
) -> tuple[EmittedToken, ...]:
    """Add a verified round to a sequence, token by token, up to the token that ends the answer.

    Going token by token makes an answer what plain decoding gives: an end-of-sequence token, a stop string, the last
    of ``max_tokens`` or the end of the context ends it on the spot, and whatever the round holds beyond is discarded,
    the bonus token included.

    Returns:
        The tokens emitted; at least one.
    """
    last_origin = _ORIGINS[result.outcome] if len(draft) else Origin.PLAIN
    tokens = [(token_id, Origin.ACCEPTED) for token_id in draft.token_ids[: result.num_accepted]]
    tokens.append((result.next_token_id, last_origin))
    emitted: list[EmittedToken] = []
    for token_id, origin in tokens:
        sequence.token_ids.append(token_id)
        is_eos = token_id in eos_ids and not sequence.params.ignore_eos
        text = "" if is_eos else sequence.text.add(token_id)
        sequence.finish_reason = _finish_reason(sequence, is_eos=is_eos)
        if sequence.finish_reason is not None:
            text += sequence.text.finish()
        emitted.append(EmittedToken(token_id, origin, text))
        if sequence.finish_reason is not None:
            break
    num_accepted = min(len(emitted), result.num_accepted)
    # An answer that ends within the accepted tokens says nothing of the draft tokens beyond.
    sequence.counters.observe(len(draft) if len(emitted) > num_accepted else num_accepted, num_accepted)
    sequence.emitted += emitted
    return tuple(emitted)


def _finish_reason(sequence: Sequence, *, is_eos: bool) -> FinishReason | None:
    if is_eos or sequence.text.is_stopped:
        return "stop"
    return "length" if sequence.num_remaining == 0 else None
