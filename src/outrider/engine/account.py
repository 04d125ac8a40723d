"""The account of an answer that has ended: what a caller gets, made of what the engine knows of it."""

from __future__ import annotations

from outrider.engine.outputs import GenerationOutput, Speculation, Timing, Usage
from outrider.engine.sequence import Sequence


def account(
    answer: Sequence, *, drafter: str | None, limit: int, store_problem: str | None, load_s: float
) -> GenerationOutput:
    """Return what a caller gets.

    Args:
        answer: It has ended.
        drafter: The name of what drafts in its engine, or None.
        limit: The most draft tokens of a round there.
        store_problem: What is wrong with the store of past outputs, if anything is.
        load_s: How long loading took.
    """
    if answer.finish_reason is None:
        raise AssertionError("an answer is put out when it is finished")
    token_ids = tuple(token.token_id for token in answer.emitted)
    started_at = answer.submitted_at if answer.started_at is None else answer.started_at
    first_token_at = answer.last_token_at if answer.first_token_at is None else answer.first_token_at
    decode_s = answer.last_token_at - first_token_at
    logprobs = tuple(token.logprobs for token in answer.emitted if token.logprobs is not None)
    return GenerationOutput(
        text="".join(token.text for token in answer.emitted),
        token_ids=token_ids,
        finish_reason=answer.finish_reason,
        usage=Usage(
            prompt_tokens=len(answer.request.prompt_ids),
            completion_tokens=len(token_ids),
            cached_tokens=answer.num_cached_tokens,
        ),
        speculation=_speculation(answer, drafter, limit, store_problem),
        timing=Timing(
            load_s=load_s,
            prefill_s=first_token_at - started_at,
            decode_s=decode_s,
            tokens_per_s=(len(token_ids) - 1) / decode_s if decode_s > 0 else None,
        ),
        logprobs=None if answer.params.logprobs is None else logprobs,
        prompt_logprobs=None if answer.prompt_logprobs is None else tuple(answer.prompt_logprobs),
        error=answer.error,
    )


def _speculation(answer: Sequence, drafter: str | None, limit: int, store_problem: str | None) -> Speculation:
    wish = answer.request.speculation
    k = limit if wish.num_speculative_tokens is None else wish.num_speculative_tokens
    drafter = wish.drafter or drafter
    reason = f"{drafter} proposes up to {k} tokens a round"
    if drafter is None:
        reason = "no draft was given"
    elif k == 0:
        reason = "num_speculative_tokens is 0" if limit == 0 else "the request asked for none"
    problems = []
    if answer.draft_problem is not None:
        what = "a draft broke off" if answer.is_drafting else "it failed and was dropped"
        problems.append(f"{what}: {answer.draft_problem}")
    if store_problem is not None:
        problems.append(f"past outputs: {store_problem}")
    problem = "; ".join(problems) or None
    return Speculation(
        active=k > 0 and drafter is not None,
        reason=reason if problem is None else f"{reason}, but {problem}",
        drafter=drafter,
        tree=answer.tree,
        counters=answer.counters,
        problem=problem,
    )
