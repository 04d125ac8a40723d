"""Asking for drafts, so that whatever a drafter does costs its drafts and never an answer.

Drafters may come from elsewhere and run models of their own. One that raises, or breaks its contract, is asked no more
for that answer, which goes on by plain decoding; what it proposed in that round is not mended, since to choose among
its tokens by what they are would bend the target's law.
"""

from __future__ import annotations

from collections.abc import Callable

from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.check import checked
from outrider.engine.sequence import Sequence
from outrider.errors import UsageError
from outrider.types import Draft, Proposal, Verdict

NO_DRAFT = Draft(())


def propose(
    drafter: Drafter,
    sequences: list[Sequence],
    request_of: Callable[[Sequence], DraftRequest],
    *,
    vocab_size: int,
    reads_laws: Callable[[Sequence], bool],
) -> list[Proposal]:
    """Return a draft for each sequence, empty for one whose drafter fails; it is dropped from that sequence.

    Args:
        drafter: Is asked for all of them at once.
        sequences: At least one.
        request_of: What to ask it; called again when it is asked again.
        vocab_size: Of the target.
        reads_laws: Whether a sequence's drafts are verified by the laws that they were drawn from.
    """
    requests = [request_of(sequence) for sequence in sequences]
    try:
        drafts = _ask(drafter, requests)
    except Exception as error:  # noqa: BLE001 - it may be anybody's code
        if len(sequences) == 1:
            drop(drafter, sequences[0], error)
            return [NO_DRAFT]
        return [
            propose(drafter, [sequence], request_of, vocab_size=vocab_size, reads_laws=reads_laws)[0]
            for sequence in sequences
        ]
    for place, (sequence, request) in enumerate(zip(sequences, requests, strict=True)):
        try:
            drafts[place] = checked(drafts[place], request, vocab_size, reads_laws=reads_laws(sequence))
            sequence.draft_problem = drafts[place].problem or sequence.draft_problem
        except Exception as error:  # noqa: BLE001, PERF203 - a draft may be anything
            drop(drafter, sequence, error)
            drafts[place] = NO_DRAFT
    return drafts


def _ask(drafter: Drafter, requests: list[DraftRequest]) -> list[Proposal]:
    drafts = list(drafter.propose(requests))
    if len(drafts) != len(requests):
        raise UsageError(f"it returned {len(drafts)} drafts for {len(requests)} requests")
    return drafts


def observe(drafter: Drafter, sequence: Sequence, verdict: Verdict) -> None:
    """Tell a drafter what became of its draft."""
    try:
        drafter.observe(sequence.request.request_id, verdict)
    except Exception as error:  # noqa: BLE001 - it may be anybody's code
        drop(drafter, sequence, error)


def drop(drafter: Drafter, sequence: Sequence, problem: Exception) -> None:
    """Ask a drafter no more for a sequence, and note why."""
    sequence.is_drafting = False
    sequence.draft_problem = f"{type(problem).__name__}: {problem}"
    release(drafter, sequence)


def release(drafter: Drafter, sequence: Sequence) -> None:
    """Let a drafter forget a sequence."""
    try:
        drafter.release(sequence.request.request_id)
    except Exception as error:  # noqa: BLE001 - it may be anybody's code
        sequence.draft_problem = sequence.draft_problem or f"{type(error).__name__}: {error}"
