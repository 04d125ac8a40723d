"""What is replayed on a recording is what the engine does on the target."""

from dataclasses import replace
from itertools import count, pairwise

import pytest
from toy_llm import toy_model

from outrider import LLM, SamplingParams
from outrider.backends.metered import MeteredBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.planner import meter
from outrider.planner.meter import Drafting, Prompted, Setting, replay
from outrider.sampling import Vocabulary, compile_params

TICKS = count()
TARGET = toy_model(1, is_sharp=True)
PROMPT = Prompted("1", "toys", tuple(TARGET.tokenizer.encode("abcabcabc")))


def record(*given, **named):
    return meter.record(*given, **named)[0]


def setting(**params):
    vocabulary = Vocabulary(TARGET.tokenizer, TARGET.vocab_size)
    return Setting(TARGET, compile_params(SamplingParams(**params), vocabulary), lambda: float(next(TICKS)))


def drafting(kind, rule="auto"):
    """Return a draft of the target's own opinion at most places, or what there is to look up."""
    if kind == "ngram":
        return Drafting(NgramDrafter(), 8, rule=rule)
    model = toy_model(1 if kind != "stranger" else 2, is_sharp=True)
    metered = MeteredBackend(model.backend, "draft", setting().clock)
    tree = 6 if kind == "tree" else 0
    drafter = DraftModelDrafter(metered, vocab_size=TARGET.vocab_size, name="draft", tree_size=tree)
    return Drafting(drafter, 3, tree, rule, (metered,))


def done_by_the_engine(one, params, seed):
    llm = LLM(
        TARGET,
        one.drafter,
        num_speculative_tokens=one.num_speculative_tokens,
        draft_tree=one.draft_tree,
        rule=one.rule,
        entropy=lambda: seed,
    )
    [output] = llm.generate("abcabcabc", params, chat=False)
    counters = output.speculation.counters
    return output.token_ids, counters.num_drafts, counters.num_draft_tokens, counters.num_accepted_tokens


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 5}, {"repetition_penalty": 1.5}])
@pytest.mark.parametrize("kind", ["model", "stranger", "tree", "ngram"])
def test_rounds_are_those_of_the_engine(kind, params):
    settings = SamplingParams(max_tokens=24, **params)
    recording = record(setting(max_tokens=24, **params), PROMPT, seed=5, drafting=drafting("ngram", "coupled"))
    rounds = replay(setting(max_tokens=24, **params), recording, drafting(kind))
    token_ids, *counts = done_by_the_engine(drafting(kind), settings, seed=5)
    assert recording.answer_ids == token_ids
    assert sum(one.num_emitted for one in rounds) == len(token_ids) - 1
    drafted = [one for one in rounds if one.num_draft_tokens]
    assert [
        len(drafted),
        sum(one.num_draft_tokens for one in drafted),
        sum(one.num_accepted for one in rounds),
    ] == counts
    for one, following in pairwise(rounds):
        assert following.length == one.length + one.num_emitted


def test_an_answer_that_ends_by_itself_is_drafted_for_as_if_it_went_on():
    said = record(setting(max_tokens=24), PROMPT, seed=0).answer_ids
    params = {"max_tokens": 24, "stop_token_ids": (said[9],)}
    recording = record(setting(**params), PROMPT, seed=0)
    assert len(recording.answer_ids) < 24
    rounds = replay(setting(**params), recording, drafting("model"))
    _, num_drafts, _, num_accepted = done_by_the_engine(drafting("model"), SamplingParams(**params), seed=0)
    assert [len(rounds), sum(one.num_accepted for one in rounds)] == [num_drafts, num_accepted]
    assert [one.num_draft_tokens for one in rounds] == [3, 3, 3]  # though one token is left of the last round


def test_passes_of_the_draft_are_noted_and_the_rest_is_timed():
    recording = record(setting(max_tokens=9), PROMPT, seed=0)
    rounds = replay(setting(max_tokens=9), recording, drafting("model"))
    assert [one.num_draft_tokens for one in rounds] == [3, 3]
    assert [one.rows for one in rounds[0].draft_passes] == [10, 1, 1]  # the prompt and the first token of the answer
    assert [one.length for one in rounds[0].draft_passes] == [0, 10, 11]
    assert [one.rows for one in rounds[1].draft_passes] == [2, 1, 1]
    assert all(one.other_s > 0 for one in rounds)


def test_sampled_answers_come_with_the_law_of_every_token():
    params = {"temperature": 0.8, "top_p": 0.9, "max_tokens": 12}
    recording = record(setting(**params), PROMPT, seed=3)
    assert len(recording.laws) == len(recording.answer_ids)
    assert all(law[said] > 0 for law, said in zip(recording.laws, recording.answer_ids, strict=True))
    assert all(abs(law.sum() - 1) < 1e-9 for law in recording.laws)
    for rule in ("token", "block", "coupled"):
        rounds = replay(setting(**params), recording, drafting("model", rule))
        assert sum(one.num_emitted for one in rounds) == len(recording.answer_ids) - 1
        assert sum(one.num_accepted for one in rounds) > 0


def test_a_text_that_nobody_said_is_found_out():
    recording = record(setting(max_tokens=9), PROMPT, seed=0)
    wrong = replace(recording, answer_ids=(recording.answer_ids[0], 257, *recording.answer_ids[2:]))
    with pytest.raises(AssertionError, match="replayed"):
        replay(setting(max_tokens=9), wrong, drafting("ngram"))
