"""What every drafter keeps: a new one joins by a line in ``DRAFTERS``.

A drafter may be wrong in any way. It must say what it was asked for, be honest about what it drew, keep requests apart,
and leave every answer as it is without it.
"""

from dataclasses import replace

import pytest
from engine_fakes import PlannedDrafter, answer, compiled, make_stepper, result_of
from small_vocabularies import byte_level
from test_law import SameCoins

from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.contract import check_drafter
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.other_vocabulary import OtherVocabularyDrafter
from outrider.engine.sequence import Request
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.sampling import SamplingParams
from outrider.verification.exact import outcomes, sequence_law, total_variation

VOCAB_SIZE = 3
COSTS = PassCosts(((1, 0.3), (2, 0.3)))
TARGET = HashLM(VOCAB_SIZE, seed=5)
GREEDY, SAMPLED = SamplingParams(max_tokens=24), SamplingParams(temperature=1.0, max_tokens=24)


def model(seed=9, **options):
    backend = ToyBackend(HashLM(options.pop("width", VOCAB_SIZE), seed=seed), options.pop("max_length", 4096))
    return DraftModelDrafter(backend, vocab_size=VOCAB_SIZE, name="toy", **options)


def stranger(**options):
    target, draft = byte_level(["a", "b", "ab"]), byte_level(["b", "ba", "a", "x"])
    joint = JointVocabulary(target, VOCAB_SIZE, draft, 4)
    return OtherVocabularyDrafter(ToyBackend(HashLM(4, seed=9)), joint, name="stranger", **options)


DRAFTERS = {
    "n-gram": NgramDrafter,
    "model": model,
    "model, wider": lambda: model(width=5),
    "model, narrower": lambda: model(width=2),
    "model, short context": lambda: model(max_length=9),
    "model, stopping": lambda: model(min_confidence=0.3, stop_ids=(2,)),
    "model, trees": lambda: model(tree_size=4, acceptance_by_rank=(0.5, 0.3, 0.1)),
    "model, trees of two": lambda: model(tree_size=2, acceptance_by_rank=(0.5, 0.45)),
    "model, trees, stopping": lambda: model(tree_size=4, min_confidence=0.3, stop_ids=(2,)),
    "cascade": lambda: CascadeDrafter(
        [Member(NgramDrafter(), None, 4), Member(model(), COSTS, 4)], vocab_size=VOCAB_SIZE
    ),
    "another vocabulary, strings": stranger,
    "another vocabulary, token by token": lambda: stranger(strings=False, min_confidence=0.3),
    "planned": lambda: PlannedDrafter(lambda context: (1, 2, 0)),
}


@pytest.fixture(params=DRAFTERS)
def make(request):
    return DRAFTERS[request.param]


def test_it_keeps_the_contract(make):
    check_drafter(make, vocab_size=VOCAB_SIZE, learns=isinstance(make(), CascadeDrafter))


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("params", [GREEDY, replace(SAMPLED, seed=1), replace(SAMPLED, seed=1, repetition_penalty=1.3)])
def test_greedy_and_coupled_answers_are_those_without_it(make, params, k):
    prompts = [(1, 2, 1, 2), (2,), (0, 0, 0)]

    def texts(drafter, max_sequences):
        stepper = make_stepper(TARGET, drafter=drafter, k=k, max_tree_tokens=4)
        return [
            result_of(one) for one in answer(stepper, prompts, params, seeds=[4, 5, 6], max_sequences=max_sequences)
        ]

    plain = texts(None, 1)
    assert texts(make(), 1) == texts(make(), 3) == plain


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_law_of_an_answer_is_the_targets(make, rule):
    """Every random decision of whole answers is enumerated; float32 logits leave some 1e-7."""
    prompt = (0, 1)
    params = SamplingParams(temperature=1.0, max_tokens=4)  # the first is not drafted, nor the last: drafts of two

    def one_answer(coins):
        stepper = make_stepper(TARGET, drafter=make(), k=2, max_tree_tokens=3, rule=rule)
        sequence = stepper.open(Request(0, prompt, compiled(params, VOCAB_SIZE), seed=0))
        sequence.coins = SameCoins(coins)
        while sequence.finish_reason is None:
            stepper.step([sequence])
        assert sequence.is_drafting, sequence.draft_problem
        return tuple(sequence.token_ids[len(prompt) :])

    wanted = sequence_law(lambda prefix: exact_probs(TARGET, prefix), 4, prompt)
    assert float(total_variation(outcomes(one_answer), wanted)) < 1e-6
