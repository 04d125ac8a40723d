"""A model with windows of attention through the whole engine: no draft changes a token, on either side of the edge."""

import pytest
import tiny

from outrider import LLM, SamplingParams
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.loading import load_model

WINDOW = 24  # tiny.py's
PROMPTS = ["The quick brown fox jumps over", "a" * (WINDOW - 3), "A language model reads some words and " * 4]
PARAMS = SamplingParams(max_tokens=40, logit_bias={382: -100.0, 383: -100.0})  # no end before the edge is crossed


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("gemma3") / "m.gguf"
    tiny.write_gguf(tiny.build_model("gemma3"), path)
    return str(path)


@pytest.fixture(scope="module")
def target(path):
    return load_model(path, ctx_size=256, threads=1)


def answers(llm):
    outputs = llm.generate(PROMPTS, PARAMS, chat=False)
    return [output.token_ids for output in outputs], outputs


@pytest.mark.parametrize("k", [1, 4, 8])
def test_no_draft_changes_a_token(path, target, k):
    plain, _ = answers(LLM(target))
    assert all(len(token_ids) == PARAMS.max_tokens for token_ids in plain)
    assert answers(LLM(target, "ngram", num_speculative_tokens=k))[0] == plain
    twin = load_model(path, ctx_size=256, threads=2)
    drafter = DraftModelDrafter(twin.backend, vocab_size=target.vocab_size, name="twin")
    found, outputs = answers(LLM(target, drafter, num_speculative_tokens=k))
    assert found == plain
    assert [output.speculation.acceptance_rate for output in outputs] == [1.0] * len(PROMPTS)


def test_drafts_that_are_often_wrong_change_nothing_either(target, tmp_path):
    """Every other token crops the caches, back across the edge of the window too."""
    plain, _ = answers(LLM(target))
    tiny.write_gguf(tiny.build_model("gemma3", seed=1), tmp_path / "other.gguf")
    other = load_model(str(tmp_path / "other.gguf"), ctx_size=256, threads=1)
    drafter = DraftModelDrafter(other.backend, vocab_size=target.vocab_size, name="other")
    found, outputs = answers(LLM(target, drafter, num_speculative_tokens=6))
    assert found == plain
    assert all(output.speculation.acceptance_rate < 0.5 for output in outputs)
