"""Trees through the engine: greedy and coupled text to the bit, the law of the rest, the caches, the account."""

import pytest
from engine_fakes import PlannedDrafter, answer, compiled, greedy, make_stepper, result_of
from test_law import SameCoins
from test_settings import SETTINGS
from toy_llm import toy_model

from outrider import LLM
from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.outputs import Origin
from outrider.engine.sequence import Request
from outrider.engine.step import NO_LIMITS
from outrider.errors import UsageError
from outrider.sampling.params import SamplingParams
from outrider.types import TreeDraft
from outrider.verification.exact import outcomes, sequence_law, total_variation

TARGET = HashLM(vocab_size=11, seed=3, max_weight=20)
PROMPT = (1, 5, 2, 2)


class PlannedTrees(PlannedDrafter):
    """Proposes the tree that ``plan`` says for a context, cut to the room there is."""

    def propose(self, requests):
        self.asked += [request.max_tree_tokens for request in requests]
        return [self.cut(self.plan(request.context_ids), request) for request in requests]

    def cut(self, draft, request):
        kept = [n for n in range(len(draft)) if len(draft.path(n + 1)) <= request.max_tokens][: request.max_tree_tokens]
        number = {-1: -1} | {node: place for place, node in enumerate(kept)}
        return TreeDraft(
            tuple(draft.token_ids[node] for node in kept),
            tuple(number[draft.parents[node]] for node in kept),
            (None,) * (len(kept) + 1),
        )


def chosen(token_ids, parents):
    return TreeDraft(tuple(token_ids), tuple(parents), (None,) * (len(parents) + 1))


def draft_model(size, seed=4, vocab_size=11, **options):
    model = ToyBackend(HashLM(vocab_size, seed=seed, max_weight=20), **options)
    return DraftModelDrafter(
        model, vocab_size=11, name="toy", tree_size=size, acceptance_by_rank=(0.5, 0.25, 0.15, 0.1)
    )


def full_of_candidates(context):
    """Three for each place, two deep, among them what TARGET says."""
    tokens, parents = [], []
    for node in (-1, 0, 1, 2):
        path = [] if node < 0 else [tokens[node]]
        right = greedy(TARGET, [*context, *path], 1)[0]
        tokens += [(right + 1) % 11, right, (right + 2) % 11]
        parents += [node] * 3
    return chosen(tokens, parents)


DRAFTERS = {
    "candidates": lambda: PlannedTrees(full_of_candidates),
    "equal siblings": lambda: PlannedTrees(lambda context: chosen((2, 2, 3, 4), (-1, -1, 0, 1))),
    "a chain": lambda: PlannedTrees(lambda context: chosen((2, 7, 2), (-1, 0, 1))),
    "nothing": lambda: PlannedTrees(lambda context: chosen((), ())),
    "a model": lambda: draft_model(12),
    "a wider model": lambda: draft_model(5, vocab_size=16),
    "a narrower model": lambda: draft_model(9, vocab_size=6),
    "a model with little context": lambda: draft_model(12, max_length=15),
    "the target itself": lambda: draft_model(12, seed=3),
}


def run(drafter, seeds=(0,), *, k=4, size=12, max_sequences=1, **settings):
    params = SamplingParams(**{"max_tokens": 20, "logprobs": 2, **settings})
    stepper = make_stepper(TARGET, eos_ids={7, 9}, drafter=drafter, k=k, max_tree_tokens=size)
    sequences = answer(stepper, [PROMPT] * len(seeds), params, seeds=list(seeds), max_sequences=max_sequences)
    assert not stepper.target._caches
    return sequences


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_greedy_or_coupled_answer_is_the_same_with_any_tree(setting, temperature):
    settings = {"temperature": temperature, "seed": 0, **SETTINGS[setting]}

    def told(sequences):
        return [(result_of(one), [token.logprobs for token in one.emitted]) for one in sequences]

    plain = told(run(None, range(4), **settings))
    for drafter, make in DRAFTERS.items():
        assert told(run(make(), range(4), max_sequences=3, **settings)) == plain, drafter


@pytest.mark.parametrize(("k", "size"), [(1, 1), (1, 4), (2, 3), (3, 40), (8, 8)])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_any_room_gives_plain_decoding(drafter, k, size):
    (plain,), (one,) = run(None), run(DRAFTERS[drafter](), k=k, size=size)
    assert result_of(one) == result_of(plain)


def test_a_tree_that_holds_the_targets_choice_is_followed_to_its_leaf():
    (one,) = run(DRAFTERS["candidates"](), max_tokens=16, ignore_eos=True)
    origins = [token.origin for token in one.emitted]
    a, b = Origin.ACCEPTED, Origin.BONUS
    assert origins == [Origin.PLAIN, *[a, a, b] * 5]
    assert one.tree == (3, 9)
    counters = one.counters
    assert (counters.num_drafts, counters.num_draft_tokens, counters.num_rejections) == (5, 60, 0)
    assert counters.num_accepted_tokens_per_pos == [5, 5]


def test_a_tree_without_the_targets_choice_is_rejected_at_its_depth():
    def plan(context):
        right = greedy(TARGET, context, 1)[0]
        return chosen((right, (right + 1) % 11, (greedy(TARGET, [*context, right], 1)[0] + 1) % 11), (-1, -1, 0))

    (one,) = run(PlannedTrees(plan), max_tokens=10, ignore_eos=True)
    counters = one.counters
    assert counters.num_rejections == counters.num_drafts == 4
    assert counters.num_accepted_tokens_per_pos == [4, 0]
    assert counters.num_draft_tokens == 12


def test_the_cache_holds_all_but_the_last_committed_token_after_each_round():
    stepper = make_stepper(TARGET, drafter=DRAFTERS["candidates"](), k=4, max_tree_tokens=12)
    sequence = stepper.open(Request(7, PROMPT, compiled(SamplingParams(max_tokens=13), 11), seed=0))
    while sequence.finish_reason is None:
        stepper.step([sequence])
        assert stepper.target.length(sequence.cache_id) == len(sequence.token_ids) - 1
        assert not stepper.target._trees
    stepper.close(sequence)


def test_a_tree_fits_the_end_of_the_context():
    """Every node takes room in the cache, though few are kept."""
    drafter = DRAFTERS["candidates"]()
    params = SamplingParams(max_tokens=99)
    stepper = make_stepper(TARGET, drafter=drafter, k=4, max_tree_tokens=12, max_length=20)
    (one,) = answer(stepper, [PROMPT], params)
    (plain,) = answer(make_stepper(TARGET, max_length=20), [PROMPT], params)
    assert result_of(one) == result_of(plain)
    assert min(drafter.asked) < 12


@pytest.mark.parametrize("num_accepted", [0, 1, 2])
def test_the_draft_models_cache_follows_after_every_outcome(num_accepted):
    """A second drafter that has seen nothing before proposes the very same tree."""
    drafter = draft_model(9)
    sequence = make_stepper(TARGET).open(Request(0, PROMPT, compiled(SamplingParams(), 11), seed=0))
    stepper = make_stepper(TARGET, drafter=drafter, k=3, max_tree_tokens=9)
    for _ in range(4):
        (draft,) = drafter.propose([stepper._draft_request(sequence, NO_LIMITS, 0)])
        (fresh,) = draft_model(9).propose([stepper._draft_request(sequence, NO_LIMITS, 0)])
        assert draft == fresh
        assert len(draft) == 9
        sequence.token_ids += [draft.token_ids[node] for node in draft.path(len(draft))][:num_accepted]
        sequence.token_ids.append(8)


# --- the law

SMALL = HashLM(vocab_size=3, seed=5, min_weight=0)
SMALL_PROMPT = (0, 1)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("drafts", ["drawn", "drawn, with tokens it never says", "chosen", "drawn, then chosen"])
def test_the_law_of_an_answer_is_the_targets(drafts, size):
    """Every random decision of whole answers is enumerated; float32 logits leave some 1e-7."""
    params = SamplingParams(temperature=1.0, max_tokens=4)  # room for trees two deep
    low = 0 if "never" in drafts else 1

    def one_answer(coins):
        drafter = PlannedTrees(lambda context: chosen((2, 0, 1, 1), (-1, -1, 0, 1)))
        if drafts != "chosen":
            backend = ToyBackend(HashLM(3, seed=9, min_weight=low))
            drafter = DraftModelDrafter(
                backend, vocab_size=3, name="toy", tree_size=size, acceptance_by_rank=(0.5, 0.3, 0.1)
            )
        if drafts == "drawn, then chosen":
            drafter = WithoutSomeLaws(drafter)
        stepper = make_stepper(SMALL, drafter=drafter, k=2, max_tree_tokens=size)
        sequence = stepper.open(Request(0, SMALL_PROMPT, compiled(params, 3), seed=0))
        sequence.coins = SameCoins(coins)
        while sequence.finish_reason is None:
            stepper.step([sequence])
        assert sequence.is_drafting, sequence.draft_problem
        return tuple(sequence.token_ids[len(SMALL_PROMPT) :])

    wanted = sequence_law(lambda prefix: exact_probs(SMALL, prefix), 4, SMALL_PROMPT)
    assert float(total_variation(outcomes(one_answer), wanted)) < 1e-6


class WithoutSomeLaws:
    """Keeps back the laws below the first level: drawn candidates may always be told as chosen."""

    name = "mixed"

    def __init__(self, drafter):
        self.drafter, self.observe, self.release = drafter, drafter.observe, drafter.release

    def propose(self, requests):
        for draft in self.drafter.propose(requests):
            yield (
                TreeDraft(draft.token_ids, draft.parents, (draft.probs[0], *[None] * len(draft)))
                if isinstance(draft, TreeDraft)
                else draft
            )


# --- the account


@pytest.mark.parametrize(
    ("params", "rule", "method"),
    [
        (SamplingParams(), "auto", "greedy"),
        (SamplingParams(temperature=1.0), "auto", "multi_draft"),
        (SamplingParams(temperature=1.0), "token", "multi_draft"),
        (SamplingParams(temperature=1.0, seed=1), "auto", "coupled"),
        (SamplingParams(temperature=1.0), "coupled", "coupled"),
    ],
)
def test_the_document_names_the_rule_and_the_tree(params, rule, method):
    options = {"rule": rule, "num_speculative_tokens": 3, "draft_tree": 7, "entropy": lambda: 1}
    llm = LLM(toy_model(), [toy_model(seed=1)], **options)
    (one,) = llm.generate("abc", SamplingParams(max_tokens=30, temperature=params.temperature, seed=params.seed))
    document = one.speculation.to_json()
    assert document["method"] == method
    assert sum(document["tree"]) <= 7
    assert len(document["tree"]) <= 3
    assert len(document["num_accepted_tokens_per_pos"]) <= 3


def test_a_chain_has_no_tree_in_its_account():
    (one,) = LLM(toy_model(), toy_model(seed=1)).generate("abc", SamplingParams(max_tokens=9))
    assert one.speculation.to_json()["tree"] is None


@pytest.mark.parametrize("size", [-1, 65, 2.5, "8"])
def test_sizes_that_no_tree_has_are_refused(size):
    with pytest.raises(UsageError, match="draft_tree is"):
        LLM(toy_model(), toy_model(seed=1), draft_tree=size)


@pytest.mark.parametrize("draft", [None, "ngram"])
def test_a_tree_without_a_model_to_draft_it_is_refused(draft):
    with pytest.raises(UsageError, match="draft_tree is 8; of ours only a draft model"):
        LLM(toy_model(), draft, draft_tree=8)


def test_prompts_side_by_side_with_chains_and_trees():
    """Rows with parents and rows without share a pass."""
    trees = DRAFTERS["a model"]()
    chains = DraftModelDrafter(ToyBackend(HashLM(11, seed=8)), vocab_size=11, name="toy")

    class Both(PlannedDrafter):
        def propose(self, requests):
            return [(trees if one.context_ids[0] % 2 else chains).propose([one])[0] for one in requests]

    params = SamplingParams(max_tokens=15, temperature=1.0, seed=3)
    prompts = [(n, 2) for n in range(6)]

    def texts(drafter, max_sequences):
        stepper = make_stepper(TARGET, drafter=drafter, k=4, max_tree_tokens=8)
        return [result_of(one) for one in answer(stepper, prompts, params, max_sequences=max_sequences)]

    plain = texts(None, 1)
    for max_sequences in (1, 3, 6):
        assert texts(Both(None), max_sequences) == plain
