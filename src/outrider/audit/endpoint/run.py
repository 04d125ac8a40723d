"""The audit of a server, from its first question to the evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from outrider.audit.endpoint.checks import Check, equality, nothing
from outrider.audit.endpoint.greedy import NAME as GREEDY
from outrider.audit.endpoint.greedy import check_greedy
from outrider.audit.endpoint.meaning import meaning_checks
from outrider.audit.endpoint.plan import Plan
from outrider.audit.endpoint.questions import Answer, Asker, Question
from outrider.audit.endpoint.sampling import CLAIMED, LAW, NUM_TOP, PLACES, POSSIBLE, check_claimed, check_law
from outrider.errors import EndpointError, RefusedError
from outrider.models.fields import shown

TOKENIZERS = "tokenizers"
_NO_BASELINE = "there is nothing to compare with; give --baseline-url or --target"
_STRETCH = 64  # answers to a prompt before the other server's turn: what drifts, drifts on both


def audit_endpoint(  # noqa: PLR0913 - two servers, and what is an argument everywhere
    audited: Asker,
    baseline: Asker | None,
    plan: Plan,
    *,
    same_engine: bool,
    rng: np.random.Generator,
    progress: Callable[[str, int], None],
) -> Iterator[Check]:
    """Yield what each check comes to, as it is done.

    A request that is refused ends its check, and a server that cannot be reached, answers garbage or has used up the
    budget ends the audit: what was not found out is yielded as such.

    Args:
        audited: The server, speculating.
        baseline: The same model without speculation; None if there is none to compare with.
        plan: How much is asked.
        same_engine: Whether the baseline is the same program.
        rng: Where it matters, places drawn tokens in their stretch of the law.
        progress: Told what goes on, and how many answers more that is.
    """
    for names, step in _steps(audited, baseline, plan, same_engine, rng, progress):
        progress(names[0], 0)
        try:
            yield from step()
        except RefusedError as error:
            yield from (nothing(name, f"the request was refused: {error}") for name in names)
        except EndpointError as error:
            yield nothing(names[0], f"the audit ended here: {error}", is_needed=True)
            return


def _steps(  # noqa: PLR0913 - see audit_endpoint
    audited: Asker,
    baseline: Asker | None,
    plan: Plan,
    same_engine: bool,  # noqa: FBT001
    rng: np.random.Generator,
    progress: Callable[[str, int], None],
) -> Iterator[tuple[Sequence[str], Callable[[], list[Check]]]]:
    prompts = plan.prompts
    if baseline is not None:
        both = baseline  # for the type checker
        yield [TOKENIZERS], lambda: [check_tokenizers(audited, both, prompts)]
        yield (
            [GREEDY],
            lambda: [check_greedy(audited, both, prompts, max_tokens=plan.greedy_tokens, near_tie=plan.near_tie)],
        )
    else:
        yield [GREEDY], lambda: [nothing(GREEDY, _NO_BASELINE)]
    for name, check in meaning_checks(audited, baseline, prompts, plan.greedy_tokens, plan.near_tie):
        yield [name], lambda check=check: [check()]  # type: ignore[misc]

    def claimed() -> list[Check]:
        questions = [Question(prompt, plan.sampled_tokens, logprobs=NUM_TOP) for prompt in prompts]
        [drawn] = draw_in_turn([audited], questions, plan.claimed(2 if baseline else 0), partial(progress, CLAIMED))
        return check_claimed(drawn, rng, plan.level, is_needed=baseline is None)

    def law() -> list[Check]:
        if baseline is None:
            return [nothing(LAW, _NO_BASELINE)]
        questions = [Question(prompt, plan.sampled_tokens) for prompt in prompts]
        drawn = draw_in_turn([audited, baseline], questions, plan.budget, partial(progress, LAW))
        return [check_law(*drawn, same_engine=same_engine, level=plan.level)]

    yield [CLAIMED, PLACES, POSSIBLE], claimed
    yield [LAW], law


def check_tokenizers(audited: Asker, baseline: Asker, prompts: Sequence[str]) -> Check:
    """Check that both servers cut prompts into as many tokens: of two models, or templates, all else would differ."""
    questions = [Question(prompt, 1, temperature=0.0) for prompt in prompts]
    pairs = list(zip(prompts, audited.ask_many(questions), baseline.ask_many(questions), strict=True))
    sizes = [(prompt, one.prompt_tokens, other.prompt_tokens) for prompt, one, other in pairs]
    if any(None in size for size in sizes):
        return nothing(TOKENIZERS, "a server does not count the tokens of prompts (usage.prompt_tokens)")
    unequal = [
        f"{shown(prompt)} is {one} tokens, and {other} for the baseline" for prompt, one, other in sizes if one != other
    ]
    if unequal:
        raise EndpointError(f"{unequal[0]}: compare a model with itself, with the same tokenizer and chat template")
    return equality(TOKENIZERS, len(sizes), [], f"{len(sizes)} prompts are as many tokens for both")


def draw_in_turn(
    askers: Sequence[Asker], questions: Sequence[Question], num: int, progress: Callable[[int], None]
) -> list[dict[str, list[Answer]]]:
    """Return sampled answers by prompt, for each asker: what drifts while they are drawn drifts on all of them."""
    drawn: list[dict[str, list[Answer]]] = [{question.prompt: [] for question in questions} for _ in askers]
    each = -(-num // len(questions))
    while len(drawn[0][questions[0].prompt]) < each:
        for question in questions:
            for asker, answers in zip(askers, drawn, strict=True):
                wanted = min(_STRETCH, each - len(answers[question.prompt]))
                answers[question.prompt] += asker.ask_many([question] * wanted)
                progress(wanted)
    return drawn
