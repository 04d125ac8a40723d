"""What every drafter keeps: a new one joins by a line in ``DRAFTERS``.

A drafter may be wrong in any way. It must say what it was asked for, be honest about what it drew, keep requests apart,
and leave every answer as it is without it.
"""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from engine_fakes import PlannedDrafter, answer, compiled, make_stepper, result_of
from test_law import SameCoins

from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.cascade import CascadeDrafter, Member
from outrider.drafters.check import checked
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.sequence import Request
from outrider.sampling import LawShaper, SamplingParams
from outrider.types import Draft, Outcome, TreeDraft, TreeResult, VerificationResult
from outrider.verification import CoinSource, Purpose
from outrider.verification.exact import outcomes, sequence_law, total_variation

VOCAB_SIZE = 5
TARGET = HashLM(VOCAB_SIZE, seed=5)
GREEDY, SAMPLED = SamplingParams(max_tokens=24), SamplingParams(temperature=1.0, max_tokens=24)


def model(seed=9, **options):
    backend = ToyBackend(HashLM(options.pop("width", VOCAB_SIZE), seed=seed), options.pop("max_length", 4096))
    return DraftModelDrafter(backend, vocab_size=VOCAB_SIZE, name="toy", **options)


DRAFTERS = {
    "n-gram": NgramDrafter,
    "model": model,
    "model, wider": lambda: model(width=7),
    "model, narrower": lambda: model(width=3),
    "model, short context": lambda: model(max_length=9),
    "model, stopping": lambda: model(min_confidence=0.3, stop_ids=(2,)),
    "model, trees": lambda: model(tree_size=6, acceptance_by_rank=(0.5, 0.3, 0.1)),
    "model, trees of two": lambda: model(tree_size=2, acceptance_by_rank=(0.5, 0.45)),
    "model, trees, stopping": lambda: model(tree_size=6, min_confidence=0.3, stop_ids=(2,)),
    "cascade": lambda: CascadeDrafter([Member(NgramDrafter(), 0.0, 4), Member(model(), 0.3, 4)], vocab_size=VOCAB_SIZE),
    "planned": lambda: PlannedDrafter(lambda context: (1, 2, 3)),
}


@pytest.fixture(params=DRAFTERS)
def make(request):
    return DRAFTERS[request.param]


def contexts():
    """Contexts that grow, as those of a request do: by one token or by several, drafted or not."""
    random = Random(3)
    context = [1, 2, 1, 2]
    for _ in range(8):
        yield list(context)
        context += [random.randrange(VOCAB_SIZE) for _ in range(random.randrange(1, 5))]


def ask(context, params=GREEDY, request_id=0, max_tokens=4, max_tree_tokens=6, seed=3):
    coins = CoinSource(seed).at(len(context), Purpose.DRAFT)
    shaper = LawShaper(compiled(params, VOCAB_SIZE), context)
    return DraftRequest(request_id, context, max_tokens, shaper, coins, max_tree_tokens)


def same(one, other):
    laws = [draft.probs for draft in (one, other)]
    if any(law is None for law in laws):
        equal = laws[0] is laws[1]
    else:
        equal = all(
            (a is None and b is None) or (a is not None and b is not None and np.array_equal(a, b))
            for a, b in zip(*laws, strict=True)
        )
    return equal and (one.token_ids, one.parents) == (other.token_ids, other.parents)


def test_it_is_a_drafter_with_a_name(make):
    drafter = make()
    assert isinstance(drafter, Drafter)
    assert isinstance(drafter.name, str)
    assert drafter.name


@pytest.mark.parametrize("params", [GREEDY, SAMPLED, replace(SAMPLED, top_k=2, frequency_penalty=0.5)])
@pytest.mark.parametrize(("max_tokens", "max_tree_tokens"), [(1, 1), (4, 6), (6, 4), (3, 0), (0, 0)])
def test_drafts_keep_their_limits_and_tell_honest_laws(make, params, max_tokens, max_tree_tokens):
    drafter = make()
    for context in contexts():
        before = list(context)
        request = ask(context, params, max_tokens=max_tokens, max_tree_tokens=max_tree_tokens)
        (draft,) = drafter.propose([request])
        assert same(draft, checked(draft, request, VOCAB_SIZE, reads_laws=True))
        assert context == before


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_asked_again_it_says_the_same(make, params):
    """An engine asks again, with fresh coins of the same place, when something went wrong elsewhere."""
    drafter = make()
    for context in contexts():
        first, second = (drafter.propose([ask(context, params)])[0] for _ in range(2))
        assert same(first, second)


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_requests_do_not_see_each_other(make, params):
    together, alone = make(), [make() for _ in range(3)]
    for context in contexts():
        texts = [context, context[::-1], [4, *context]]
        drafts = together.propose([ask(text, params, number) for number, text in enumerate(texts)])
        for number, (text, drafter) in enumerate(zip(texts, alone, strict=True)):
            assert same(drafts[number], drafter.propose([ask(text, params, number)])[0])


def test_it_may_be_told_anything_that_can_become_of_a_draft_and_forget_anybody(make):
    drafter = make()
    drafter.release("never seen")
    for context in contexts():
        (draft,) = drafter.propose([ask(context)])
        for row in range(len(draft) + 1) if len(draft) else ():
            outcome = Outcome.BONUS if row == len(draft) else Outcome.RECOVERED
            if isinstance(draft, TreeDraft):
                drafter.observe(0, TreeResult(draft.path(row), 1, outcome))
            else:
                drafter.observe(0, VerificationResult(row, 1, outcome))
    drafter.release(0)
    drafter.release(0)
    assert isinstance(drafter.propose([ask([1, 2])])[0], Draft | TreeDraft)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("params", [GREEDY, replace(SAMPLED, seed=1), replace(SAMPLED, seed=1, repetition_penalty=1.3)])
def test_greedy_and_coupled_answers_are_those_without_it(make, params, k):
    prompts = [(1, 2, 1, 2), (3,), (0, 0, 0)]

    def texts(drafter, max_sequences):
        stepper = make_stepper(TARGET, drafter=drafter, k=k, max_tree_tokens=6)
        return [
            result_of(one) for one in answer(stepper, prompts, params, seeds=[4, 5, 6], max_sequences=max_sequences)
        ]

    plain = texts(None, 1)
    assert texts(make(), 1) == texts(make(), 3) == plain


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_law_of_an_answer_is_the_targets(make, rule):
    """Every random decision of whole answers is enumerated; float32 logits leave some 1e-7."""
    prompt = (0, 1)
    params = SamplingParams(temperature=1.0, max_tokens=3, allowed_token_ids=(0, 1, 2))

    def one_answer(coins):
        stepper = make_stepper(TARGET, drafter=make(), k=2, max_tree_tokens=3, rule=rule)
        sequence = stepper.open(Request(0, prompt, compiled(params, VOCAB_SIZE), seed=0))
        sequence.coins = SameCoins(coins)
        while sequence.finish_reason is None:
            stepper.step([sequence])
        assert sequence.is_drafting, sequence.draft_problem
        return tuple(sequence.token_ids[len(prompt) :])

    def law(prefix):
        probs = exact_probs(TARGET, prefix)
        probs[3:] = 0
        return probs / probs.sum()

    assert float(total_variation(outcomes(one_answer), sequence_law(law, 3, prompt))) < 1e-6
