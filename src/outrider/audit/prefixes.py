"""Places in real texts to draw from: where a fault would show.

A place where the target is all but certain tells nothing, whatever a verifier does there, nor does one where nothing is
drafted. Places are therefore chosen by the target's law and by what is drafted there, before anything is drawn: where
the commonest fault (:mod:`outrider.audit.control`) would move the first token's law most. That is fair, since no draw
has a say in it, but it makes the audit's distances those of such places, not of the average token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

from outrider.audit.cells import PrefixLaws
from outrider.audit.draws import Prefix
from outrider.audit.memory import Memory
from outrider.engine.scheduler import run
from outrider.engine.sequence import Request
from outrider.engine.step import Stepper
from outrider.errors import UsageError
from outrider.sampling import CompiledParams, LawShaper

ANSWER_TOKENS = 48
LONGEST_PROMPT = 512
_SIDE_BY_SIDE = 8
# Of each answer so many places are looked at closely, those whose entropy is nearest to this many nats; a law over two
# equally likely tokens has 0.7.
_NUM_CANDIDATES = 8
_WANTED_ENTROPY = 1.5


def choose_prefixes(  # noqa: PLR0913 - where, how many, and of what
    prompts: Sequence[tuple[str, tuple[int, ...]]],
    num: int,
    *,
    plain: Stepper,
    memory: Memory,
    compiled: CompiledParams,
    seed: int,
    telling: Callable[[Prefix], float],
) -> list[Prefix]:
    """Let the target answer prompts, and return places in its answers, from each prompt in turn.

    Args:
        prompts: Name and token ids of each.
        num: How many places.
        plain: Runs the target without a draft.
        memory: Of the target.
        compiled: How its tokens are chosen, for answers of ``ANSWER_TOKENS``.
        seed: Of its answers.
        telling: How far the commonest fault would move the law of the first token.

    Raises:
        UsageError: No prompt is short enough, or no answer long enough.
    """
    used = [prompt for prompt in prompts if len(prompt[1]) <= LONGEST_PROMPT][: 2 * num]
    if not used:
        raise UsageError(f"no prompt has at most {LONGEST_PROMPT} tokens; give shorter ones to draw from")
    requests = [Request(object(), ids, compiled, seed, choice=number) for number, (_, ids) in enumerate(used)]
    answers: dict[int, tuple[int, ...]] = {}
    for answer, _tokens in run(plain, requests, max_sequences=_SIDE_BY_SIDE, clock=lambda: 0.0):
        if answer.error is not None:
            raise answer.error
        answers[answer.request.choice] = tuple(answer.token_ids)
    places = []
    for number, (name, ids) in enumerate(used):
        found = _by_entropy(name, answers[number], len(ids), memory, compiled, plain)
        places.append(sorted(found, key=telling))
    if not any(places):
        raise UsageError("every answer ends after its first token; give prompts that ask for more")
    chosen: list[Prefix] = []
    for number in cycle(range(len(used))):
        if len(chosen) == num or not any(places):
            break
        if places[number]:
            chosen.append(places[number].pop())
    return chosen


def _by_entropy(  # noqa: PLR0913 - a text and how to look at it
    name: str, text: tuple[int, ...], prompt_length: int, memory: Memory, compiled: CompiledParams, plain: Stepper
) -> list[Prefix]:
    """Return some places in an answer where the target is in two minds."""
    lengths = range(prompt_length + 1, len(text))
    memory.learn(text[:length] for length in lengths)
    entropies = {}
    for length in lengths:
        shaper = shaper_at(text[:length], prompt_length, compiled)
        entropies[length] = PrefixLaws(memory, text[:length], shaper, plain.vocab_size).entropy()
    nearest = sorted(lengths, key=lambda length: abs(entropies[length] - _WANTED_ENTROPY))[:_NUM_CANDIDATES]
    return [Prefix(f"{name}, token {length - prompt_length}", text[:length]) for length in nearest]


def shaper_at(text: Sequence[int], prompt_length: int, compiled: CompiledParams) -> LawShaper:
    """Return what logits go through after a prompt and the beginning of an answer."""
    shaper = LawShaper(compiled, text[:prompt_length])
    for token_id in text[prompt_length:]:
        shaper.advance(token_id)
    return shaper
