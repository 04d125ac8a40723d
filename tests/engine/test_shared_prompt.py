"""The target reads the prompt of ``n`` answers once."""

import pytest
from toy_llm import toy_model

from outrider import LLM, SamplingParams
from outrider.backends.toy import HashLM, ToyBackend


class Counting(ToyBackend):
    """Counts the tokens it is fed."""

    def __init__(self, *args):
        super().__init__(*args)
        self.num_fed = 0

    def forward(self, batch):
        self.num_fed += sum(len(rows.token_ids) for rows in batch)
        return super().forward(batch)


def make(draft=None, **options):
    model = toy_model()
    backend = Counting(HashLM(259, seed=0, max_weight=10**6), 900)
    return LLM(type(model)("toy", backend, model.tokenizer, model.chat_template, 900), draft, **options), backend


PARAMS = SamplingParams(max_tokens=8, temperature=1.0, seed=4)
PROMPT = "x" * 400


def several(n, **settings):
    return SamplingParams(**{"max_tokens": 8, "temperature": 1.0, "seed": 4, "n": n, **settings})


@pytest.mark.parametrize("max_sequences", [1, 2, 3, 8])
@pytest.mark.parametrize("prompt_logprobs", [None, 0])
def test_n_answers_feed_the_prompt_once(max_sequences, prompt_logprobs):
    llm, backend = make(max_sequences=max_sequences)
    params = several(5, prompt_logprobs=prompt_logprobs)
    outputs = llm.generate([PROMPT, "y"], [params, PARAMS])
    num_prompt = len(llm.encode(PROMPT)) + len(llm.encode("y"))
    # Each answer feeds the last token of its prompt, and each of its own but the last.
    assert backend.num_fed == num_prompt - 2 + 6 + 6 * 7
    assert not backend._caches
    assert len({output.prompt_logprobs for output in outputs[:5]}) == 1
    assert (outputs[0].prompt_logprobs is None) == (prompt_logprobs is None)


@pytest.mark.parametrize("draft", [None, "ngram", toy_model(seed=1)])
@pytest.mark.parametrize("max_sequences", [1, 3])
def test_they_are_those_of_a_prompt_read_by_each(draft, max_sequences):
    llm, _ = make(draft, max_sequences=max_sequences)
    prompts = [PROMPT, "a", PROMPT]
    outputs = llm.generate(prompts, several(3, logprobs=1))
    again = make()[0].generate([PROMPT, "a"], several(2, logprobs=1))
    told = [(one.token_ids, one.text, one.logprobs) for one in outputs]
    assert told[:3] == told[6:]
    assert [told[0], told[1], told[3], told[4]] == [(one.token_ids, one.text, one.logprobs) for one in again]
    assert make()[0].generate(PROMPT, PARAMS)[0].token_ids == outputs[0].token_ids


def test_the_draft_model_reads_the_prompt_of_answers_side_by_side_once():
    draft = toy_model(seed=1)
    backend = Counting(HashLM(259, seed=1), 900)
    draft = type(draft)("draft", backend, draft.tokenizer, draft.chat_template, 900)
    llm, _ = make([draft], max_sequences=4)
    outputs = llm.generate(PROMPT, several(4))
    assert backend.num_fed < 2 * len(llm.encode(PROMPT))
    assert not backend._caches
    assert [one.token_ids for one in outputs] == [one.token_ids for one in make()[0].generate(PROMPT, several(4))]


def test_a_prompt_of_one_token_is_shared_too():
    llm, backend = make()
    outputs = llm.generate("a", several(3), chat=False)
    assert len({one.token_ids for one in outputs}) == 3
    assert backend.num_fed == 3 * 8


def test_whoever_stops_in_between_leaves_no_cache_behind():
    class Full(Counting):
        def forward(self, batch):
            if self.num_fed > 420:
                raise MemoryError
            return super().forward(batch)

    model = toy_model()
    backend = Full(HashLM(259), 900)
    llm = LLM(type(model)("toy", backend, model.tokenizer, None, 900), max_sequences=2)
    outputs = llm.generate(PROMPT, several(4))
    assert outputs[-1].finish_reason == "error"
    assert "MemoryError" in str(outputs[-1].error)
    assert not backend._caches
