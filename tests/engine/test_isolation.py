"""What goes wrong with one request, or with what drafts for it, ends nothing else."""

from itertools import product

import numpy as np
import pytest
from engine_fakes import PlannedDrafter, answer, make_stepper, result_of
from toy_llm import toy_model

import outrider.engine.step
from outrider import LLM
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.errors import NumericalError, UsageError
from outrider.sampling import LawShaper
from outrider.sampling.params import SamplingParams
from outrider.types import Draft, TreeDraft

TARGET = HashLM(vocab_size=11, seed=3)
PROMPTS = [(1, 5), (2, 2, 7), (3,)]


class Breaks(PlannedDrafter):
    """Does ``deed`` for contexts that start with 2, from their third round on."""

    def __init__(self, deed):
        super().__init__(lambda context: (0, 1))
        self.deed = deed

    def propose(self, requests):
        drafts = super().propose(requests)
        for place, request in enumerate(requests):
            if request.context_ids[0] == 2 and len(request.context_ids) > 5:
                drafts[place] = self.deed(request)
        return drafts


def raises(request):
    raise ZeroDivisionError("of its own")


LAW = np.full((1, 11), 1 / 11)
DEEDS = {
    "raises": raises,
    "no draft at all": lambda request: None,
    "ids beyond the vocabulary": lambda request: Draft((11,)),
    "an id below zero": lambda request: Draft((0, -1)),
    "more than was asked for": lambda request: Draft((1, 2, 3, 4, 5)),
    "ids that are no numbers": lambda request: Draft(("a",)),
    "ids that are no whole numbers": lambda request: Draft((1.5,)),
    "a tree that is none": lambda request: TreeDraft((1, 2), (-1, 1), (None, None, None)),
    "a tree without all its laws": lambda request: TreeDraft((1, 2), (-1, -1), (None,)),
    "a tree beyond its room": lambda request: TreeDraft(tuple(range(9)), (-1,) * 9, (None,) * 10),
    "a tree that is too deep": lambda request: TreeDraft((1,) * 5, tuple(range(-1, 4)), (None,) * 6),
}
UNLAWFUL = {
    "a law of another vocabulary": lambda request: Draft((1,), np.full((1, 7), 1 / 7)),
    "a law that was rounded": lambda request: Draft((1,), LAW.astype(np.float32)),
    "a law that sums to less": lambda request: Draft((1,), LAW * 0.9),
    "a law that is NaN": lambda request: Draft((1,), LAW * np.nan),
    "a law with an entry below zero": lambda request: Draft((1,), LAW + np.eye(1, 11, 1) - np.eye(1, 11, 2)),
    "a law that excludes its token": lambda request: Draft((1,), np.eye(1, 11)),
    "a law too many": lambda request: Draft((1,), np.repeat(LAW, 2, axis=0)),
    "siblings drawn twice": lambda request: TreeDraft((1, 1), (-1, -1), (LAW[0], None, None)),
}


def run(drafter, temperature, rule="token", prompts=PROMPTS):
    params = SamplingParams(max_tokens=12, temperature=temperature)
    stepper = make_stepper(TARGET, drafter=drafter, k=4, max_tree_tokens=8, rule=rule)
    return answer(stepper, prompts, params, seeds=[5, 6, 7][: len(prompts)], max_sequences=3, drafters_must_last=False)


@pytest.mark.parametrize(
    ("deed", "temperature"),
    [*product(DEEDS, [0.0, 1.0]), *product(UNLAWFUL, [1.0])],  # greedy targets read no laws
)
def test_a_drafter_that_fails_is_dropped_for_that_request_and_the_text_is_unharmed(deed, temperature):
    plain = run(None, temperature, "coupled")
    drafter = Breaks({**DEEDS, **UNLAWFUL}[deed])
    one, broken, other = run(drafter, temperature, "coupled" if deed in DEEDS else "token")
    assert not broken.is_drafting
    assert broken.draft_problem
    assert drafter.released.count(1) >= 1
    assert broken.finish_reason == "length"
    assert (one.is_drafting, other.is_drafting) == (True, True)
    assert one.counters.num_drafts > broken.counters.num_drafts > 0
    if deed in DEEDS:
        assert [result_of(each) for each in (one, broken, other)] == [result_of(each) for each in plain]


def test_the_law_is_unharmed_by_a_drafter_that_fails():
    """Whatever was proposed in the round is discarded before any decision, so the round is a plain one.

    What follows is plain decoding with the coins of its place.
    """
    for deed in UNLAWFUL.values():
        never = run(Breaks(lambda request: Draft(())), 1.0)
        assert [result_of(each) for each in run(Breaks(deed), 1.0)] == [result_of(each) for each in never]


@pytest.mark.parametrize(("temperature", "rule"), [(0.0, "auto"), (1.0, "coupled")])
@pytest.mark.parametrize("deed", UNLAWFUL)
def test_laws_that_nobody_reads_may_be_anything(deed, temperature, rule):
    plain = run(None, temperature, rule)
    assert [result_of(each) for each in run(Breaks(UNLAWFUL[deed]), temperature, rule)] == [
        result_of(each) for each in plain
    ]


def test_a_drafter_that_fails_when_it_is_told_or_released_harms_nobody():
    class Deaf(PlannedDrafter):
        def observe(self, request_id, result):
            raise KeyError(request_id)

        def release(self, request_id):
            raise RuntimeError("gone")

    sequences = run(Deaf(lambda context: (1, 2)), 0.0)
    assert [result_of(one) for one in sequences] == [result_of(one) for one in run(None, 0.0)]
    assert [one.draft_problem for one in sequences] == ["KeyError: 0", "KeyError: 1", "KeyError: 2"]


def test_a_drafter_that_returns_too_few_drafts_is_dropped():
    class Few(PlannedDrafter):
        def propose(self, requests):
            return super().propose(requests)[1:]

    sequences = run(Few(lambda context: (1, 2)), 0.0)
    assert [result_of(one) for one in sequences] == [result_of(one) for one in run(None, 0.0)]
    assert all("returned 0 drafts for 1 requests" in one.draft_problem for one in sequences)


def test_the_account_of_an_answer_tells_of_a_dropped_drafter():
    def plan(context):
        if len(context) > 20:
            raise OSError("the disk is full")
        return (1, 2)

    model = toy_model()
    params = SamplingParams(max_tokens=30)
    (plain,), (one,) = LLM(model).generate("abc", params), LLM(model, PlannedDrafter(plan)).generate("abc", params)
    assert one.token_ids == plain.token_ids
    assert one.speculation.reason.endswith("but it failed and was dropped: OSError: the disk is full")


class Broken(ToyBackend):
    """Its logits after token 4 are NaN."""

    def forward(self, batch):
        logits = super().forward(batch)
        first = 0
        for rows in batch:
            fed = np.array(rows.token_ids[len(rows.token_ids) - rows.num_logits :])
            logits[first : first + rows.num_logits][fed == 4] = np.nan
            first += rows.num_logits
        return logits


def broken_llm(draft=None, **options):
    model = toy_model()
    broken = Broken(HashLM(259, seed=1, max_weight=10**6))
    return LLM(type(model)("toy", broken, model.tokenizer, None, 400), draft, **options)


BIAS = {4: 5.0, 5: 4.5}


@pytest.mark.parametrize("draft", [None, "ngram", PlannedDrafter(lambda context: (4, 4, 5))])
@pytest.mark.parametrize("max_sequences", [1, 4])
def test_an_answer_that_cannot_go_on_ends_by_itself(draft, max_sequences):
    llm = broken_llm(draft, max_sequences=max_sequences)
    params = [SamplingParams(max_tokens=6, temperature=1.0, seed=seed, logit_bias=BIAS) for seed in range(12)]
    outputs = llm.generate(["a"] * 12, params)
    errors = [one for one in outputs if one.finish_reason == "error"]
    assert 0 < len(errors) < 12
    for one, plain in zip(outputs, broken_llm().generate(["a"] * 12, params), strict=True):
        assert (one.token_ids, one.text, one.finish_reason) == (plain.token_ids, plain.text, plain.finish_reason)
        is_broken = one.token_ids[-1] == 4 and len(one.token_ids) < 6
        assert isinstance(one.error, NumericalError) == (one.finish_reason == "error") == is_broken
        assert ("error" in one.to_json()) == (one.finish_reason == "error")
        assert len(one.token_ids) == one.usage.completion_tokens


def test_the_only_answer_asked_for_raises_its_error():
    params = SamplingParams(max_tokens=9, logit_bias={4: 100.0})
    with pytest.raises(NumericalError):
        broken_llm().generate("a", params)
    chunks = []
    with pytest.raises(NumericalError):
        chunks += iter(broken_llm().stream("a", params))
    (chunk, *_) = broken_llm().stream("a", SamplingParams(max_tokens=9, logit_bias={4: -100.0}))
    assert chunk.tokens


@pytest.mark.parametrize("n", [1, 2])
def test_a_prompt_that_cannot_be_read_ends_only_its_answers(n):
    params = SamplingParams(max_tokens=3, prompt_logprobs=1, n=n)
    bad = f"a{toy_model().tokenizer.token_bytes(4).decode()}b"
    outputs = broken_llm().generate([bad, "ab"], params, chat=False)
    assert [one.finish_reason for one in outputs] == ["error"] * n + ["length"] * n
    assert outputs[0].token_ids == ()
    assert outputs[0].prompt_logprobs is None
    assert broken_llm().generate(bad, SamplingParams(max_tokens=3), chat=False)[0].finish_reason == "length"


def test_nothing_is_read_behind_the_end_of_an_answer():
    """The row after an accepted end-of-sequence token is NaN; plain decoding does not get there."""
    stepper = make_stepper(TARGET, drafter=PlannedDrafter(lambda context: (4, 1)), k=2, eos_ids={4})
    stepper = type(stepper)(Broken(TARGET), 11, frozenset({4}), stepper.detokenizer, stepper.drafter, 2)
    params = SamplingParams(max_tokens=12, logit_bias={4: 100.0}, min_tokens=2)
    (one,) = answer(stepper, [(1,)], params)
    assert (one.error, one.finish_reason, one.token_ids[-1]) == (None, "stop", 4)


def test_a_draft_model_without_context_left_or_memory_for_its_cache_is_no_error():
    class Full(ToyBackend):
        def open_sequence(self):
            raise UsageError("no room")

    sequences = run(DraftModelDrafter(Full(TARGET), vocab_size=11, name="toy"), 0.0)
    assert [result_of(one) for one in sequences] == [result_of(one) for one in run(None, 0.0)]
    assert all(one.draft_problem == "UsageError: no room" for one in sequences)


class TooComplex(LawShaper):
    """Its grammar gives up at the sixth token, committed or drafted, of an answer to a prompt that begins with 2."""

    def __init__(self, compiled, prompt_ids):
        super().__init__(compiled, prompt_ids)
        self.left = 6 if prompt_ids[0] == 2 else 99

    def advance(self, token_id):
        self.left -= 1
        self._check(self.left)
        super().advance(token_id)

    def shape(self, logits, draft_ids, *, out=None):
        self._check(self.left - len(draft_ids))
        return super().shape(logits, draft_ids, out=out)

    def _check(self, left):
        if left <= 0:
            raise UsageError("response_format cannot be honoured: too complex")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda: PlannedDrafter(lambda context: (1, 2, 3)),
        lambda: DraftModelDrafter(ToyBackend(TARGET), vocab_size=11, name="toy"),
        lambda: DraftModelDrafter(ToyBackend(TARGET), vocab_size=11, name="toy", tree_size=7),
    ],
)
def test_a_grammar_that_becomes_too_complex_ends_its_answer_where_plain_decoding_does(make, temperature, monkeypatch):
    monkeypatch.setattr(outrider.engine.step, "LawShaper", TooComplex)
    plain = run(None, temperature, "coupled")
    drafted = run(make(), temperature, "coupled")
    assert [result_of(one) for one in drafted] == [result_of(one) for one in plain]
    assert [one.finish_reason for one in drafted] == ["length", "error", "length"]
    assert len(drafted[1].emitted) == 6
    assert str(drafted[1].error) == "response_format cannot be honoured: too complex"
    assert drafted[1].is_drafting
