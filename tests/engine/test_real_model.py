"""SmolLM2-135M through the whole engine: no draft changes a token; a model that drafts for itself is always right."""

import os
from pathlib import Path

import pytest

from outrider import LLM, SamplingParams
from outrider.backends.base import Rows
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.loading import load_model

PROMPTS = [
    "Write a Python function that returns the n-th Fibonacci number.",
    "Repeat exactly: apple, pear, plum, apple, pear, plum, cherry, apple, pear, plum, cherry.",
    [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Grüße \U0001f642! Who are you?"}],
]
PARAMS = SamplingParams(max_tokens=32)


@pytest.fixture(scope="module")
def target():
    return load_model("smollm2-135m", ctx_size=512)


@pytest.fixture(scope="module")
def plain(target):
    return [(output.token_ids, output.text) for output in LLM(target).generate(PROMPTS, PARAMS)]


def answers(llm, params=PARAMS):
    outputs = llm.generate(PROMPTS, params)
    return [(output.token_ids, output.text) for output in outputs], outputs


@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_model_that_drafts_for_itself_is_always_right_and_changes_nothing(target, plain, k):
    twin = load_model("smollm2-135m", ctx_size=512)
    drafter = DraftModelDrafter(twin.backend, vocab_size=target.vocab_size, name="twin")
    found, outputs = answers(LLM(target, drafter, num_speculative_tokens=k))
    assert found == plain
    for output in outputs:
        assert output.speculation.acceptance_rate == 1.0
        if output.finish_reason == "length":
            num_full_rounds = (PARAMS.max_tokens - 1) // (k + 1)
            assert output.speculation.counters.num_drafts in (num_full_rounds, num_full_rounds + 1)


def test_prompt_lookup_changes_nothing_and_finds_repetitions(target, plain):
    found, outputs = answers(LLM(target, "ngram"))
    assert found == plain
    assert outputs[1].speculation.counters.num_accepted_tokens > 0


def test_neither_company_nor_threads_change_anything(target, plain):
    assert answers(LLM(target, "ngram", max_sequences=3))[0] == plain
    assert answers(LLM("smollm2-135m", threads=3, ctx_size=300))[0] == plain


def test_seeded_text_is_the_same_with_and_without_a_draft(target):
    params = SamplingParams(max_tokens=32, temperature=0.8, top_p=0.95, seed=11)
    assert answers(LLM(target), params)[0] == answers(LLM(target, "ngram"), params)[0]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees_change_nothing(target, temperature):
    """Of a model drafting for itself: greedily every round ends at a leaf, and losing branches leave no trace."""
    params = SamplingParams(max_tokens=24, temperature=temperature, seed=11)
    drafter = DraftModelDrafter(target.backend, vocab_size=target.vocab_size, name="twin", tree_size=8)
    found, outputs = answers(LLM(target, drafter, num_speculative_tokens=3, draft_tree=8, max_sequences=3), params)
    assert found == answers(LLM(target), params)[0]
    for output in outputs:
        assert sum(output.speculation.tree) == 8
        assert temperature or output.speculation.counters.num_rejections == 0


def test_a_new_sequence_takes_no_more_memory_than_its_tokens_touch(target):
    """Its cache begins with 5.9 MB, which would be cleared in one round if they were huge pages."""

    def num_bytes():
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def begin():
        backend.forward([Rows(backend.open_sequence(), [1])])

    backend = target.backend
    begin()  # what all sequences share
    before = num_bytes()
    begin()
    assert 0 < num_bytes() - before < 2 << 20
