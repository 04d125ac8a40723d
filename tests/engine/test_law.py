"""What the engine emits follows the target's law: drafting, scoring, verification and commit together.

The first proof enumerates every random decision of whole answers, so there is no sampling noise: what is left is the
rounding of float32 logits. The second draws with real seeds, which shows that the coins are dealt out independently.
"""

from collections import Counter
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import log

import numpy as np
import pytest
from engine_fakes import PlannedDrafter, answer, compiled, make_stepper

from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.sequence import Request
from outrider.sampling.params import SamplingParams
from outrider.verification.exact import outcomes, sequence_law, total_variation

TARGET = HashLM(vocab_size=3, seed=5, min_weight=0)
PROMPT = (0, 1)
NUM_TOKENS = 4


class SameCoins:
    """Deals the decisions of one enumeration, which wants fractions, to every round."""

    def __init__(self, coins):
        self.coins = coins

    def at(self, position, purpose):
        return self

    def at_depth(self, depth):
        return self

    def accept(self, numerator, denominator):
        return self.coins.accept(Fraction(float(numerator)), Fraction(float(denominator)))

    def draw(self, weights):
        return self.coins.draw([Fraction(float(weight)) for weight in weights])


def draft_model(seed, *, min_confidence=0.0, **sizes):
    backend = ToyBackend(HashLM(seed=seed, **sizes))
    return DraftModelDrafter(backend, vocab_size=3, name="toy", min_confidence=min_confidence)


@dataclass(frozen=True)
class CutLM:
    """Never says token 1, like a draft whose output matrix was cut; what it says else is in HashLM's proportions."""

    model: HashLM

    @property
    def vocab_size(self):
        return self.model.vocab_size

    def weights(self, prefix):
        return tuple(0 if token == 1 else weight for token, weight in enumerate(self.model.weights(prefix)))


class WholeHeadClaimer(DraftModelDrafter):
    """Draws from the law over the tokens kept, but claims the one over the whole vocabulary."""

    def propose(self, requests):
        drafts = super().propose(requests)
        pairs = zip(requests, drafts, strict=True)
        return [replace(draft, probs=self.claim(request, draft)) for request, draft in pairs]

    def claim(self, request, draft):
        contexts = [[*request.context_ids, *draft.token_ids[:row]] for row in range(len(draft.token_ids))]
        return np.array([exact_probs(HashLM(3, seed=9), context) for context in contexts], float).reshape(-1, 3)


def cut_draft_model(kind=DraftModelDrafter):
    return kind(ToyBackend(CutLM(HashLM(3, seed=9))), vocab_size=3, name="toy")


DRAFTERS = {
    "none": lambda: None,
    "draft model": lambda: draft_model(9, vocab_size=3),
    "draft model that stops in doubt": lambda: draft_model(9, vocab_size=3, min_confidence=0.5),
    "draft model with tokens it never says": lambda: draft_model(2, vocab_size=3, min_weight=0),
    "draft model with a cut head": cut_draft_model,
    "the target itself": lambda: DraftModelDrafter(ToyBackend(TARGET), vocab_size=3, name="toy"),
    "wider vocabulary": lambda: draft_model(9, vocab_size=5),
    "narrower vocabulary": lambda: draft_model(9, vocab_size=2),
    "short context": lambda: DraftModelDrafter(ToyBackend(HashLM(3, seed=9), max_length=4), vocab_size=3, name="toy"),
    "ngram": NgramDrafter,
    "always the same": lambda: PlannedDrafter(lambda context: (2, 2, 2)),
    "now more, now less": lambda: PlannedDrafter(lambda context: (0, 1, 2)[: len(context) % 4]),
}


def law_of_an_answer(make_drafter, rule):
    params = SamplingParams(temperature=1.0, max_tokens=NUM_TOKENS)

    def one_answer(coins):
        stepper = make_stepper(TARGET, drafter=make_drafter(), k=2, rule=rule)
        sequence = stepper.open(Request(0, PROMPT, compiled(params, 3), seed=0))
        sequence.coins = SameCoins(coins)
        while sequence.finish_reason is None:
            stepper.step([sequence])
        assert sequence.is_drafting, sequence.draft_problem
        return tuple(sequence.token_ids[len(PROMPT) :])

    return outcomes(one_answer)


def distance_from_the_targets(emitted):
    wanted = sequence_law(lambda prefix: exact_probs(TARGET, prefix), NUM_TOKENS, PROMPT)
    return float(total_variation(emitted, wanted))


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_law_of_an_answer_is_the_targets(drafter, rule):
    emitted = law_of_an_answer(DRAFTERS[drafter], rule)
    assert sum(emitted.values()) == pytest.approx(1)
    assert distance_from_the_targets(emitted) < 1e-6


def test_a_cut_head_whose_law_is_claimed_to_be_the_whole_one_is_found_out():
    emitted = law_of_an_answer(lambda: cut_draft_model(WholeHeadClaimer), "token")
    assert distance_from_the_targets(emitted) > 1e-3


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("drafter", ["none", "draft model", "always the same"])
def test_seeded_answers_follow_the_targets_law(drafter, rule):
    """G-test on the joint law of the first three tokens, 27 cells, over 6000 seeds.

    The bound is the 1 - 1e-6 quantile of chi-square with 26 degrees of freedom, 79. A law whose divergence is
    0.02 (a total variation of about 0.1) would score 240 and pass with a chance below 1e-6.
    """
    target = HashLM(vocab_size=3, seed=5)
    seeds = range(6000)
    params = SamplingParams(temperature=1.0, max_tokens=3)
    stepper = make_stepper(target, drafter=DRAFTERS[drafter](), k=2, rule=rule)
    sequences = answer(stepper, [PROMPT] * len(seeds), params, seeds=list(seeds), max_sequences=50)
    counts = Counter(tuple(sequence.token_ids[len(PROMPT) :]) for sequence in sequences)
    law = sequence_law(lambda prefix: exact_probs(target, prefix), 3, PROMPT)
    assert set(counts) <= set(law)
    score = 2 * sum(counts[cell] * log(counts[cell] / (len(seeds) * law[cell])) for cell in counts)
    assert score < 79


def test_a_seeded_text_depends_on_no_draft_and_no_length():
    params = SamplingParams(temperature=0.8, top_p=0.9, max_tokens=12, seed=1)
    for seed in range(6):
        texts = set()
        for name, k in product(DRAFTERS, [1, 3]):
            stepper = make_stepper(TARGET, drafter=DRAFTERS[name](), k=k)
            (sequence,) = answer(stepper, [PROMPT], params, seeds=[seed])
            texts.add(tuple(sequence.token_ids))
        assert len(texts) == 1


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
def test_a_seeded_text_is_the_same_in_any_company(rule):
    params = SamplingParams(temperature=1.0, max_tokens=25)
    prompts, seeds = [(1,), (2,), (1,), (1,)], [5, 5, 6, 5]

    def texts(max_sequences):
        stepper = make_stepper(HashLM(5, seed=1), drafter=DRAFTERS["draft model"](), k=3, vocab_size=3, rule=rule)
        sequences = answer(stepper, prompts, params, seeds=seeds, max_sequences=max_sequences)
        return [tuple(sequence.token_ids) for sequence in sequences]

    alone = texts(1)
    assert alone == texts(2) == texts(4)
    assert alone[0] == alone[3] != alone[2]


def test_a_tiny_temperature_is_greedy_and_breaks_nothing():
    for temperature in (1e-30, 1e-6, 1e-5, 1e-4):
        params = SamplingParams(temperature=temperature, max_tokens=30)
        drafter = DraftModelDrafter(ToyBackend(HashLM(50, seed=1, max_weight=10**6)), vocab_size=50, name="toy")
        target = HashLM(50, seed=2, max_weight=10**6)
        (sampled,) = answer(make_stepper(target, drafter=drafter, k=3), [PROMPT], params)
        (greedy,) = answer(make_stepper(target), [PROMPT], SamplingParams(max_tokens=30))
        assert sampled.token_ids == greedy.token_ids
