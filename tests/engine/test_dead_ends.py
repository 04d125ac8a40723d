"""A draft never turns an answer into an error: what plain decoding does not come to harms nobody.

Each model here has contexts from which nothing can be said. Plain decoding keeps away from them, or comes to some of
them by chance; drafts lead there all the time.
"""

from dataclasses import replace

import numpy as np
import pytest
from engine_fakes import PlannedDrafter, answer, make_stepper, result_of
from toy_llm import toy_model

from outrider import LLM
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.step import Stepper
from outrider.errors import NumericalError
from outrider.sampling.params import SamplingParams

A, B = 0, 1
TARGET = HashLM(vocab_size=5, seed=3)
# After A nothing may be said: both tokens that are allowed complete a bad word. B is what is said, A all but never.
DEAD_END = {"allowed_token_ids": [A, B], "bad_words": ["aa", "ab"], "logit_bias": {B: 60.0}}
PROMPT = (1, 0, 0, 1, 0, 0)
DRAFTERS = {
    "a dead end": lambda: PlannedDrafter(lambda context: (A, A)),
    "a dead end later": lambda: PlannedDrafter(lambda context: (B, B, A, B)),
    "a dead end at the last row": lambda: PlannedDrafter(lambda context: (B, A)),
    "ngram": NgramDrafter,
    "draft model": lambda: DraftModelDrafter(ToyBackend(HashLM(5, seed=9)), vocab_size=5, name="toy"),
}


class Likes(DraftModelDrafter):
    """Once it is biased it would say A as often as B, until it gets to the dead end."""

    def _padded(self, logits):
        row = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        row[[A, B]] = [0.0, -60.0]
        return row


DRAFTERS["a draft model that likes the dead end"] = lambda: Likes(
    ToyBackend(HashLM(5, seed=9)), vocab_size=5, name="toy"
)


@pytest.mark.parametrize("rule", ["auto", "token", "block", "coupled"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_draft_into_a_dead_end_is_turned_back_and_that_is_all(drafter, temperature, rule):
    params = SamplingParams(temperature=temperature, max_tokens=6, **DEAD_END)
    stepper = make_stepper(TARGET, drafter=DRAFTERS[drafter](), k=4, rule=rule)
    for one in answer(stepper, [PROMPT] * 20, params, seeds=list(range(20)), max_sequences=4):
        assert result_of(one)[0] == [B] * 6


class Broken(ToyBackend):
    """Has NaN for every logit after token 4."""

    def forward(self, batch):
        logits = super().forward(batch)
        first = 0
        for rows in batch:
            fed = np.array(rows.token_ids[len(rows.token_ids) - rows.num_logits :])
            logits[first : first + rows.num_logits][fed == 4] = np.nan
            first += rows.num_logits
        return logits


def outcome(drafter, temperature, rule, seed):
    """Return the answer of a model that breaks down when it has said token 4; its reason is an error if it did."""
    params = SamplingParams(temperature=temperature, max_tokens=6, seed=seed)
    plain = make_stepper(TARGET)
    stepper = Stepper(Broken(TARGET), 5, frozenset(), plain.detokenizer, drafter, 4, rule=rule)
    (one,) = answer(stepper, [PROMPT], params, seeds=[seed])
    assert isinstance(one.error, NumericalError) == (one.finish_reason == "error")
    return result_of(one)


@pytest.mark.parametrize("draft", [(4, 4), (4, 1, 2), (2, 4, 1)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_breaks_down_does_so_just_where_it_would_have_in_plain_decoding(draft, temperature):
    """vllm#53029 the other way round: a draft token of which the model makes NaN."""
    fates = []
    for seed in range(40):
        plain = outcome(None, temperature, "coupled", seed)
        assert outcome(PlannedDrafter(lambda context: draft), temperature, "coupled", seed) == plain
        fates.append(plain[2] == "error")
    assert temperature == 0 or 0 < sum(fates) < 40


@pytest.mark.parametrize("rule", ["token", "block"])
def test_a_draft_model_makes_a_breakdown_no_likelier(rule):
    """At 300 seeds each the shares differ by 0.12 with a chance of 0.3 %; the seeds are fixed."""
    draft_model = lambda: DraftModelDrafter(ToyBackend(HashLM(5, seed=9)), vocab_size=5, name="toy")  # noqa: E731
    seeds = range(300)
    plain = sum(outcome(None, 1.0, rule, seed)[2] == "error" for seed in seeds)
    drafted = sum(outcome(draft_model(), 1.0, rule, seed)[2] == "error" for seed in seeds)
    assert abs(plain - drafted) < 36


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_model_that_breaks_down_costs_its_drafts_and_not_the_answer(temperature, rule):
    params = SamplingParams(temperature=temperature, max_tokens=12)
    drafter = DraftModelDrafter(Broken(HashLM(5, seed=9)), vocab_size=5, name="toy")
    sequences = answer(make_stepper(TARGET, drafter=drafter, k=4, rule=rule), [PROMPT] * 9, params, seeds=range(9))
    assert all(len(one.emitted) == 12 for one in sequences)
    assert temperature == 0 or any("nan" in (one.draft_problem or "") for one in sequences)


def test_the_account_of_an_answer_tells_of_a_broken_draft_model():
    class NoNumbers(ToyBackend):
        def forward(self, batch):
            return np.full_like(super().forward(batch), np.nan)

    draft = replace(toy_model(name="small"), backend=NoNumbers(HashLM(259)))
    params = SamplingParams(max_tokens=10)  # a draft model need not read for fewer
    (one,), (plain,) = LLM(toy_model(), draft).generate("Hello", params), LLM(toy_model()).generate("Hello", params)
    assert one.token_ids == plain.token_ids
    assert one.speculation.counters.num_drafts == 0
    assert "tokens a round, but a draft broke off: row 0 of" in one.speculation.reason
