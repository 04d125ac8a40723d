"""Whether what a request says means the same with speculation: lengths, stop strings, penalties, seeds, logprobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from outrider.audit.endpoint.checks import Check, equality, nothing
from outrider.audit.endpoint.greedy import NUM_TOP, judge, part
from outrider.audit.endpoint.questions import Answer, Asker, Question

_LENGTHS = (1, 2, 3, 5, 8)
_PENALTY = 2.0  # the largest that OpenAI allows: small ones may change nothing in a short answer
_SEEDS = (11, 12, 13)
_SEEDED_TOKENS = 24
_LOGPROB_TOLERANCE = 0.25  # nats; of likely tokens


def meaning_checks(
    audited: Asker, baseline: Asker | None, prompts: Sequence[str], max_tokens: int, near_tie: float
) -> Iterator[tuple[str, Callable[[], Check]]]:
    """Yield the name of each check and what does it; see the functions below for their arguments."""

    @cache
    def plain() -> Sequence[Answer]:
        return audited.ask_many([Question(prompt, max_tokens, temperature=0.0) for prompt in prompts])

    def penalty(field: str) -> Check:
        fields: dict[str, Any] = {field: _PENALTY}
        questions = [Question(prompt, max_tokens, temperature=0.0, logprobs=NUM_TOP, **fields) for prompt in prompts]
        return check_penalty(field, questions, plain(), audited, baseline, near_tie=near_tie)

    yield "max_tokens", lambda: check_max_tokens(audited, prompts, plain())
    yield "stop", lambda: check_stop(audited, prompts, plain())
    yield "presence_penalty", lambda: penalty("presence_penalty")
    yield "frequency_penalty", lambda: penalty("frequency_penalty")
    yield "seed", lambda: check_seeds(audited, baseline, prompts, max_tokens=min(max_tokens, _SEEDED_TOKENS))
    yield "logprobs", lambda: check_logprobs(audited, baseline, prompts, max_tokens=max_tokens)


def check_max_tokens(audited: Asker, prompts: Sequence[str], plain: Sequence[Answer]) -> Check:
    """Check that greedy answers of a few lengths are beginnings of longer ones, and as long as they may be."""
    name = "max_tokens"
    questions = [
        (Question(prompt, length, temperature=0.0), whole)
        for prompt, whole in zip(prompts, plain, strict=True)
        for length in _LENGTHS
    ]
    answers = audited.ask_many([question for question, _ in questions])
    if all(answer.completion_tokens is None for answer in answers):
        return nothing(name, "the server does not count the tokens of its answers (usage.completion_tokens)")
    wrong = []
    for (question, whole), answer in zip(questions, answers, strict=True):
        size, what = answer.completion_tokens, f"max_tokens {question.max_tokens} gives {answer.text!r}"
        if size is not None and size > question.max_tokens:
            wrong.append(f"{what}, {size} tokens")
        elif size is not None and size < question.max_tokens and answer.finish_reason == "length":
            wrong.append(f"{what}, {size} tokens, cut for length")
        elif not whole.text.startswith(answer.text.rstrip("\ufffd")):
            wrong.append(f"{what}, and a longer answer begins with {whole.text[: len(answer.text)]!r}")
    return equality(name, len(answers), wrong, f"{len(answers)} answers are as long as asked for")


def check_stop(audited: Asker, prompts: Sequence[str], plain: Sequence[Answer]) -> Check:
    """Check that a string from the middle of a greedy answer ends it there, wherever tokens meet."""
    name = "stop"
    cases = [(prompt, one.text, one.text[len(one.text) // 3 :][:3]) for prompt, one in zip(prompts, plain, strict=True)]
    cases = [case for case in cases if len(case[2]) == 3 and case[2].strip()]
    if not cases:
        return nothing(name, "greedy answers are too short to stop within; give other --prompts")
    questions = [Question(prompt, len(text) + 8, temperature=0.0, stop=stop) for prompt, text, stop in cases]
    wrong = []
    for (_, text, stop), answer in zip(cases, audited.ask_many(questions), strict=True):
        expected = text[: text.index(stop)]
        if answer.text != expected:
            wrong.append(f"stop {stop!r} in {text!r} gives {answer.text!r} instead of {expected!r}")
        elif answer.finish_reason not in ("stop", None):
            wrong.append(f"an answer that a stop string ends has finish_reason {answer.finish_reason!r}")
    return equality(name, len(cases), wrong, f"{len(cases)} answers end before their stop strings")


def check_penalty(  # noqa: PLR0913 - two servers and what they were asked
    name: str,
    questions: Sequence[Question],
    plain: Sequence[Answer],
    audited: Asker,
    baseline: Asker | None,
    *,
    near_tie: float,
) -> Check:
    """Check that a penalty changes greedy answers, and in the same way with and without speculation."""
    answers = audited.ask_many(questions)
    changed = sum(one.text != other.text for one, other in zip(answers, plain, strict=True))
    if baseline is None:
        if not changed:
            return nothing(name, "it changes no answer; a --baseline-url would tell whether it should")
        return equality(name, len(answers), [], f"it changes {changed} of {len(answers)} answers")
    others = baseline.ask_many(questions)
    if not changed and any(part("", one, other) for one, other in zip(answers, others, strict=True)):
        return equality(name, len(answers), ["it changes no answer with speculation, and some without"], "")
    prompts = [question.prompt for question in questions]
    check = judge(name, prompts, answers, others, near_tie=near_tie)
    if check.evidence.finding().statistic and not all(map(_is_top, others)):
        # Log probabilities are those before penalties then, and say nothing of how near a tie was.
        return nothing(name, f"answers differ, as {check.summary}; their logprobs are those before penalties")
    if not changed:
        return nothing(name, "it changes no answer, with or without speculation; give other --prompts")
    return check


def _is_top(answer: Answer) -> bool:
    """Whether every token of a greedy answer is the likeliest of those reported at its place."""
    return all(place.logprob >= max(place.top.values(), default=0.0) - 1e-6 for place in answer.places or ())


def check_seeds(audited: Asker, baseline: Asker | None, prompts: Sequence[str], *, max_tokens: int) -> Check:
    """Check that a seed makes an answer reproducible if it does without speculation, and that seeds differ."""
    name = "seed"
    questions = [Question(prompt, max_tokens, seed=seed) for prompt in prompts for seed in _SEEDS]
    wrong, varies = _not_reproducible(audited, questions)
    if not varies:
        return nothing(name, f"{len(_SEEDS)} seeds give one answer each time: are sampled answers certain?")
    if wrong:
        if baseline is None:
            return nothing(name, f"{wrong[0]}; a --baseline-url would tell whether it should be reproducible")
        if _not_reproducible(baseline, questions)[0]:
            return nothing(name, "a seed makes answers reproducible on neither server, so nothing can be compared")
    passed = f"{len(questions)} answers come again with their seeds"
    return equality(name, len(questions), wrong, passed)


def _not_reproducible(asker: Asker, questions: Sequence[Question]) -> tuple[list[str], bool]:
    """Return which questions are answered differently when asked again, and whether seeds make a difference."""
    first, second = ([answer.text for answer in asker.ask_many(questions)] for _ in range(2))
    wrong = [
        f"seed {question.seed} gives {one!r}, then {other!r}"
        for question, one, other in zip(questions, first, second, strict=True)
        if one != other
    ]
    by_prompt: dict[str, set[str]] = {}
    for question, text in zip(questions, first, strict=True):
        by_prompt.setdefault(question.prompt, set()).add(text)
    return wrong, any(len(texts) > 1 for texts in by_prompt.values())


def check_logprobs(audited: Asker, baseline: Asker | None, prompts: Sequence[str], *, max_tokens: int) -> Check:
    """Check the log probabilities of greedy tokens: one a token, not all of them 0, and the baseline's."""
    name = "logprobs"
    questions = [Question(prompt, max_tokens, temperature=0.0, logprobs=NUM_TOP) for prompt in prompts]
    answers = audited.ask_many(questions)
    others = [] if baseline is None else baseline.ask_many(questions)
    values = [place.logprob for answer in answers for place in answer.places or ()]
    if not values and any(other.places for other in others):
        return equality(name, len(answers), ["there are none with speculation, and there are without"], "")
    if not values:
        return nothing(name, "the server reports none")
    wrong = [
        f"{answer.text!r} has {len(answer.places)} log probabilities for {answer.completion_tokens} tokens"
        for answer in answers
        if answer.places is not None
        and answer.completion_tokens is not None
        and len(answer.places) > answer.completion_tokens
    ]
    if not any(values):
        wrong.append(f"all of {len(values)} are 0")
    differences = [0.0]
    for answer, other in zip(answers, others, strict=False):
        for here, there in zip(answer.places or (), other.places or (), strict=False):
            if here.token != there.token:
                break
            if there.top and not here.top:
                wrong.append(
                    f"{here.token!r} in {answer.text!r} has {here.logprob:.3f} and no likeliest tokens beside it"
                )
                break
            differences.append(abs(here.logprob - there.logprob))
            if differences[-1] > _LOGPROB_TOLERANCE:
                wrong.append(f"{here.token!r} in {answer.text!r} has {here.logprob:.3f}, not {there.logprob:.3f}")
    compared = f", within {max(differences):.3f} nats of the baseline's" if others else ""
    return equality(name, max(len(values), len(wrong)), wrong, f"{len(values)} tokens have theirs{compared}")
