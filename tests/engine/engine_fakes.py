"""What the engine's tests share: toy vocabularies, drafters with a plan, and plain decoding written independently."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider.backends.toy import ToyBackend, ToyModel
from outrider.drafters.base import DraftRequest
from outrider.engine.scheduler import run
from outrider.engine.sequence import Request
from outrider.engine.step import Stepper
from outrider.sampling import CompiledParams, SamplingParams, Vocabulary, compile_params
from outrider.types import Draft

LETTERS = [bytes([97 + index]) for index in range(26)]


@dataclass(frozen=True)
class Pieces:
    """A detokenizer: token ``i`` adds ``pieces[i]``."""

    pieces: Sequence[bytes]

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]


def letters(vocab_size: int) -> Pieces:
    return Pieces([LETTERS[index % 26] for index in range(vocab_size)])


@dataclass(frozen=True)
class ScriptLM:
    """Says ``script`` after a prompt of one token, then token 0 for ever."""

    script: Sequence[int]
    vocab_size: int

    def weights(self, prefix: Sequence[int]) -> tuple[int, ...]:
        position = len(prefix) - 1
        token_id = self.script[position] if position < len(self.script) else 0
        return tuple(int(index == token_id) for index in range(self.vocab_size))


class PlannedDrafter:
    """Proposes what ``plan`` says for a context; records what it is told."""

    name = "planned"

    def __init__(self, plan: Callable[[Sequence[int]], Sequence[int]]) -> None:
        self.plan = plan
        self.observed: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.released: list[int] = []

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.asked += [request.max_tokens for request in requests]
        return [Draft(tuple(self.plan(request.context_ids))[: request.max_tokens]) for request in requests]

    def observe(self, request_id, result) -> None:
        self.observed.append((request_id, result.num_accepted))

    def release(self, request_id: int) -> None:
        self.released.append(request_id)


def greedy(model: ToyModel, prefix: Sequence[int], count: int) -> list[int]:
    """The next ``count`` tokens of greedy decoding, one at a time, lowest id on a tie."""
    ids = list(prefix)
    for _ in range(count):
        weights = model.weights(ids)
        ids.append(weights.index(max(weights)))
    return ids[len(prefix) :]


def pattern_drafter(model: ToyModel, patterns: Sequence[Sequence[bool]]) -> PlannedDrafter:
    """Drafts of which the target accepts exactly the tokens up to the first False of each pattern, in turn."""
    turn = iter(range(10**9))

    def plan(context: Sequence[int]) -> list[int]:
        pattern = patterns[next(turn) % len(patterns)]
        draft: list[int] = []
        for is_right in pattern:
            right = greedy(model, [*context, *draft], 1)[0]
            draft.append(right if is_right else (right + 1) % model.vocab_size)
        return draft

    return PlannedDrafter(plan)


def plain(
    model: ToyModel, prompt: Sequence[int], params: SamplingParams, pieces: Pieces, *, eos_ids=(), max_length=4096
) -> tuple[list[int], str, str]:
    """Greedy decoding without an engine: ids, text and finish reason, by looking at the whole text after each token."""
    ids: list[int] = []
    shown: list[int] = []
    while True:
        token_id = greedy(model, [*prompt, *ids], 1)[0]
        ids.append(token_id)
        is_eos = token_id in eos_ids and not params.ignore_eos
        if not is_eos:
            shown.append(token_id)
        text = b"".join(map(pieces.token_bytes, shown)).decode(errors="replace")
        cuts = [text.index(stop) for stop in params.stop if stop in text]
        if is_eos or cuts:
            return ids, text[: min(cuts)] if cuts else text, "stop"
        if len(ids) == params.max_tokens or len(prompt) + len(ids) == max_length:
            return ids, text, "length"


def make_stepper(model: ToyModel, *, pieces=None, eos_ids=(), drafter=None, k=0, max_length=4096, **options) -> Stepper:
    return Stepper(
        target=ToyBackend(model, max_length),
        vocab_size=options.pop("vocab_size", model.vocab_size),
        eos_ids=frozenset(eos_ids),
        detokenizer=pieces or letters(model.vocab_size),
        drafter=drafter,
        num_speculative_tokens=k,
        **options,
    )


@dataclass(frozen=True)
class Letters:
    """Letter ``a`` is token 0, and so on; a space is no token."""

    eos_ids: Sequence[int] = ()

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return [ord(character) - 97 for character in text if character != " "]


def compiled(params: SamplingParams, vocab_size: int, eos_ids=()) -> CompiledParams:
    return compile_params(params, Vocabulary(Letters(eos_ids), vocab_size))


def answer(
    stepper: Stepper, prompts: Sequence[Sequence[int]], params, *, seeds=None, max_sequences=1, drafters_must_last=True
):
    """Run requests to the end and return their sequences, in order."""
    many = params if isinstance(params, list) else [params] * len(prompts)
    seeds = seeds or [0] * len(prompts)
    requests = [
        Request(index, tuple(prompts[index]), compiled(many[index], stepper.vocab_size, stepper.eos_ids), seeds[index])
        for index in range(len(prompts))
    ]
    sequences = {}
    ticks = iter(range(10**9))
    for sequence, _ in run(stepper, requests, max_sequences=max_sequences, clock=lambda: float(next(ticks))):
        sequences[sequence.request.request_id] = sequence
    if drafters_must_last:
        assert [one.draft_problem for one in sequences.values() if not one.is_drafting] == []
    return [sequences[index] for index in range(len(prompts))]


def result_of(sequence) -> tuple[list[int], str, str]:
    ids = sequence.token_ids[len(sequence.request.prompt_ids) :]
    assert ids == [token.token_id for token in sequence.emitted]
    return ids, "".join(token.text for token in sequence.emitted), sequence.finish_reason
