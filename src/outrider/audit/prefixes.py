"""Places in real texts to draw from: where the target is in two minds.

A place where the target is all but certain tells nothing, whatever a verifier does there: every rule emits the same
token. Places are therefore chosen by the entropy of the target's law. That is fair, since it is chosen before a draft
is ever asked, but it makes the audit's distances those of such places, not of the average token.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from outrider.audit.cells import PrefixLaws
from outrider.audit.draws import Prefix
from outrider.audit.memory import Memory
from outrider.engine.scheduler import run
from outrider.engine.sequence import Request
from outrider.engine.step import Stepper
from outrider.errors import UsageError
from outrider.sampling import CompiledParams, LawShaper

ANSWER_TOKENS = 32
LONGEST_PROMPT = 512
_SIDE_BY_SIDE = 8
# Nats; one after the other. A law over two equally likely tokens has 0.7.
_WANTED = (1.5, 1.0, 2.0, 0.7)


def choose_prefixes(  # noqa: PLR0913 - where, how many, and of what
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    num: int,
    *,
    plain: Stepper,
    memory: Memory,
    compiled: CompiledParams,
    seed: int,
) -> list[Prefix]:
    """Let the target answer prompts, and return places in its answers, from each prompt in turn.

    Args:
        prompts: Name and token ids of each.
        num: How many places.
        plain: Runs the target without a draft.
        memory: Of the target.
        compiled: How its tokens are chosen, for answers of ``ANSWER_TOKENS``.
        seed: Of its answers.

    Raises:
        UsageError: No prompt is short enough, or no answer long enough.
    """
    used = [prompt for prompt in prompts if len(prompt[1]) <= LONGEST_PROMPT][:num]
    if not used:
        raise UsageError(f"no prompt has at most {LONGEST_PROMPT} tokens; give shorter ones to draw from")
    requests = [Request(object(), ids, compiled, seed, choice=number) for number, (_, ids) in enumerate(used)]
    answers: dict[int, tuple[int, ...]] = {}
    for answer, _tokens in run(plain, requests, max_sequences=_SIDE_BY_SIDE, clock=lambda: 0.0):
        if answer.error is not None:
            raise answer.error
        answers[answer.request.choice] = tuple(answer.token_ids)
    places = [_by_entropy(answers[number], len(ids), memory, compiled, plain) for number, (_, ids) in enumerate(used)]
    if not any(places):
        raise UsageError("every answer ends after its first token; give prompts that ask for more")
    chosen: list[Prefix] = []
    for number, wanted in zip(cycle(range(len(used))), cycle(_WANTED), strict=False):
        if len(chosen) == num or not any(places):
            return chosen
        if places[number]:
            length = min(places[number], key=lambda at: abs(places[number][at] - wanted))
            del places[number][length]
            name = f"{used[number][0]}, token {length - len(used[number][1])}"
            chosen.append(Prefix(name, answers[number][:length]))
    raise AssertionError("cycles do not end")


def _by_entropy(
    text: tuple[int, ...], prompt_length: int, memory: Memory, compiled: CompiledParams, plain: Stepper
) -> dict[int, float]:
    """Return the entropy of what follows each beginning of a text that holds some of the answer, by its length."""
    lengths = range(prompt_length + 1, len(text))
    memory.learn(text[:length] for length in lengths)
    entropies = {}
    for length in lengths:
        shaper = shaper_at(text[:length], prompt_length, compiled)
        entropies[length] = PrefixLaws(memory, text[:length], shaper, plain.vocab_size).entropy()
    return entropies


def shaper_at(text: Sequence[int], prompt_length: int, compiled: CompiledParams) -> LawShaper:
    """Return what logits go through after a prompt and the beginning of an answer."""
    shaper = LawShaper(compiled, text[:prompt_length])
    for token_id in text[prompt_length:]:
        shaper.advance(token_id)
    return shaper
