"""Greedy rounds give plain decoding, whatever the drafts, their lengths and who else takes part."""

from itertools import product

import pytest
from engine_fakes import (
    PlannedDrafter,
    answer,
    compiled,
    greedy,
    letters,
    make_stepper,
    pattern_drafter,
    plain,
    result_of,
)

from outrider.backends.prefill import PIECE
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.outputs import Origin
from outrider.engine.sequence import Request
from outrider.engine.step import Stepper
from outrider.errors import NumericalError
from outrider.sampling.params import SamplingParams

MODEL = HashLM(vocab_size=11, seed=3)
PROMPT = (1, 5, 2, 2)
PARAMS = SamplingParams(max_tokens=23)


def expected(prompt=PROMPT, params=PARAMS, model=MODEL, **limits):
    return plain(model, prompt, params, letters(model.vocab_size), **limits)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_every_acceptance_pattern_gives_plain_decoding(k):
    for pattern in product([True, False], repeat=k):
        drafter = pattern_drafter(MODEL, [pattern])
        stepper = make_stepper(MODEL, drafter=drafter, k=k)
        (sequence,) = answer(stepper, [PROMPT], PARAMS)
        assert result_of(sequence) == expected(), pattern
        num_accepted = pattern.index(False) if False in pattern else k
        # The last drafts may be shorter than the pattern, for want of room.
        full = [accepted for (_, accepted), asked in zip(drafter.observed, drafter.asked, strict=True) if asked == k]
        assert full
        assert set(full) == {num_accepted}, pattern


def test_patterns_that_change_from_round_to_round_give_plain_decoding():
    patterns = [pattern for k in (0, 1, 2, 3, 4) for pattern in product([True, False], repeat=k)]
    params = SamplingParams(max_tokens=120)
    for start in range(len(patterns)):
        drafter = pattern_drafter(MODEL, patterns[start:] + patterns[:start])
        (sequence,) = answer(make_stepper(MODEL, drafter=drafter, k=4), [PROMPT], params)
        assert result_of(sequence) == expected(params=params)


def test_the_first_drafted_token_is_verified_too():
    wrong = PlannedDrafter(lambda context: [(greedy(MODEL, context, 1)[0] + 1) % MODEL.vocab_size])
    (sequence,) = answer(make_stepper(MODEL, drafter=wrong, k=1), [PROMPT], PARAMS)
    assert result_of(sequence) == expected()
    assert sequence.counters.num_accepted_tokens == 0


def test_origins_and_counters_tell_the_same_story():
    drafter = pattern_drafter(MODEL, [(True, True), (True, False), (), (False, True)])
    (sequence,) = answer(make_stepper(MODEL, drafter=drafter, k=2), [PROMPT], PARAMS)
    origins = [token.origin for token in sequence.emitted]
    a, r, b, p = Origin.ACCEPTED, Origin.RECOVERED, Origin.BONUS, Origin.PLAIN
    assert origins[:8] == [p, a, a, b, a, r, p, r]
    counters = sequence.counters
    assert origins.count(a) == counters.num_accepted_tokens == sum(counters.num_accepted_tokens_per_pos)
    assert origins.count(r) == counters.num_rejections
    assert origins.count(r) + origins.count(b) == counters.num_drafts == len(drafter.observed)
    assert origins.count(p) + len(drafter.observed) + origins.count(a) == PARAMS.max_tokens


@pytest.mark.parametrize("k", range(1, 9))
def test_a_draft_model_gives_plain_decoding(k):
    drafter = DraftModelDrafter(ToyBackend(HashLM(11, seed=4)), vocab_size=11, name="toy")
    (sequence,) = answer(make_stepper(MODEL, drafter=drafter, k=k), [PROMPT], PARAMS)
    assert result_of(sequence) == expected()


@pytest.mark.parametrize("k", range(1, 9))
def test_a_model_drafting_for_itself_is_always_right(k):
    drafter = DraftModelDrafter(ToyBackend(MODEL), vocab_size=11, name="toy")
    params = SamplingParams(max_tokens=1 + 3 * (k + 1))
    (sequence,) = answer(make_stepper(MODEL, drafter=drafter, k=k), [PROMPT], params)
    assert result_of(sequence) == expected(params=params)
    assert sequence.counters.num_accepted_tokens == sequence.counters.num_draft_tokens == 3 * k
    assert sequence.counters.num_drafts == 3


def test_ngram_gives_plain_decoding_and_is_right_sometimes():
    model = HashLM(vocab_size=3, seed=1)  # few tokens, so that pairs recur
    params = SamplingParams(max_tokens=200)
    (sequence,) = answer(make_stepper(model, drafter=NgramDrafter(), k=8), [PROMPT[2:]], params)
    assert result_of(sequence) == expected(PROMPT[2:], params, model)
    assert sequence.counters.num_accepted_tokens > 0


@pytest.mark.parametrize("max_sequences", [1, 2, 3, 8])
def test_company_changes_nothing(max_sequences):
    prompts = [(1,), (1, 2, 3), (4, 4), (5, 6, 7, 8, 9), (10,), (0, 0, 0)]
    params = [SamplingParams(max_tokens=n) for n in (1, 17, 5, 30, 2, 9)]
    drafter = DraftModelDrafter(ToyBackend(HashLM(11, seed=4)), vocab_size=11, name="toy")
    stepper = make_stepper(MODEL, drafter=drafter, k=4)
    sequences = answer(stepper, prompts, params, max_sequences=max_sequences)
    for prompt, one, sequence in zip(prompts, params, sequences, strict=True):
        assert result_of(sequence) == expected(prompt, one)


def test_drafts_of_every_length_mix_in_one_round():
    prompts = [(1,), (2,), (3,), (4,), (5,)]
    drafters = {
        prompt: pattern_drafter(MODEL, [(True,) * n, (True,) * n + (False,)]) for n, prompt in enumerate(prompts)
    }
    drafter = PlannedDrafter(lambda context: drafters[context[0],].plan(context))
    sequences = answer(make_stepper(MODEL, drafter=drafter, k=5), prompts, PARAMS, max_sequences=5)
    for prompt, sequence in zip(prompts, sequences, strict=True):
        assert result_of(sequence) == expected(prompt)


def test_the_cache_holds_all_but_the_last_committed_token_after_each_round():
    stepper = make_stepper(MODEL, drafter=pattern_drafter(MODEL, [(True, False, True), (True, True, True)]), k=3)
    sequence = stepper.open(Request(7, PROMPT, compiled(PARAMS, 11), seed=0))
    while sequence.finish_reason is None:
        stepper.step([sequence])
        assert stepper.target.length(sequence.cache_id) == len(sequence.token_ids) - 1
    stepper.close(sequence)


def test_a_long_prompt_goes_in_pieces_and_gives_the_same():
    sizes = []

    class Spy(ToyBackend):
        def forward(self, batch):
            sizes.append(sum(len(rows.token_ids) for rows in batch))
            return super().forward(batch)

    prompt = tuple(i % 11 for i in range(2 * PIECE + 1))
    params = SamplingParams(max_tokens=3)
    stepper = make_stepper(MODEL)
    spied = Stepper(Spy(MODEL), stepper.vocab_size, stepper.eos_ids, stepper.detokenizer)
    (sequence,) = answer(spied, [prompt], params)
    assert result_of(sequence) == expected(prompt, params)
    assert sizes == [PIECE, PIECE, 1, 1, 1]


def test_five_runs_accept_the_same_tokens():
    traces = []
    for _ in range(5):
        drafter = DraftModelDrafter(ToyBackend(HashLM(11, seed=4)), vocab_size=11, name="toy")
        (sequence,) = answer(make_stepper(MODEL, drafter=drafter, k=3), [PROMPT], PARAMS)
        traces.append([(token.token_id, token.origin) for token in sequence.emitted])
    assert all(trace == traces[0] for trace in traces)


def test_logits_that_pad_the_vocabulary_are_not_looked_at():
    stepper = make_stepper(HashLM(16, seed=8), vocab_size=5)
    (sequence,) = answer(stepper, [(1, 2)], SamplingParams(max_tokens=40))
    assert {token.token_id for token in sequence.emitted} <= set(range(5))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nothing_is_emitted_from_logits_that_are_not_numbers(temperature):
    """vllm#42722, vllm#53029: an id beyond the vocabulary, or a plausible one."""

    class Broken(ToyBackend):
        def forward(self, batch):
            logits = super().forward(batch)
            if len(logits) == 3:
                logits[1, 4] = float("nan")
            return logits

    stepper = make_stepper(MODEL, drafter=pattern_drafter(MODEL, [(True, True)]), k=2)
    target = Broken(MODEL)
    stepper = Stepper(target, 11, frozenset(), stepper.detokenizer, stepper.drafter, 2)
    params = SamplingParams(max_tokens=9, temperature=temperature, seed=3)
    (broken,) = answer(stepper, [PROMPT], params, seeds=[3])
    (fine,) = answer(make_stepper(MODEL), [PROMPT], params, seeds=[3])
    assert isinstance(broken.error, NumericalError)
    assert len(broken.emitted) < 9
    assert fine.token_ids[: len(broken.token_ids)] == broken.token_ids
    assert not target._caches, "an error frees the caches"
