"""Every setting means the same with and without speculation, through the whole engine."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from engine_fakes import PlannedDrafter, answer, compiled, make_stepper, result_of
from test_law import SameCoins
from toy_llm import EOS_ID, toy_model

from outrider import LLM, SamplingParams
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.sequence import Request
from outrider.errors import UsageError
from outrider.verification.exact import outcomes, sequence_law, total_variation

TARGET = HashLM(vocab_size=11, seed=3, max_weight=20)
PROMPT = (1, 5, 2, 2)
EOS = {7, 9}


def draft_model(**options):
    model = HashLM(**{"vocab_size": 11, "seed": 4, "max_weight": 20, **options})
    return DraftModelDrafter(ToyBackend(model), vocab_size=11, name="toy")


DRAFTERS = {
    "draft model": draft_model,
    "draft model with tokens it never says": lambda: draft_model(min_weight=0, max_weight=2),
    "narrower vocabulary": lambda: draft_model(vocab_size=6),
    "wider vocabulary": lambda: draft_model(vocab_size=15),
    "the target itself": lambda: DraftModelDrafter(ToyBackend(TARGET), vocab_size=11, name="toy"),
    "ngram": NgramDrafter,
    "always the same": lambda: PlannedDrafter(lambda context: (2, 2, 7, 2)),
    "now more, now less": lambda: PlannedDrafter(lambda context: tuple(range(11))[len(context) % 7 :]),
}

SETTINGS = {
    "typical_p": {"typical_p": 0.6},
    "limits": {"top_k": 6, "top_p": 0.9, "min_p": 0.1},
    "repetition_penalty": {"repetition_penalty": 1.7},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 0.7},
    "logit_bias": {"logit_bias": {2: 3.0, 7: 1.0, 0: -100.0}},
    "bad_words": {"bad_words": ["a", "cb", "ddd", "ef"]},
    "allowed_token_ids": {"allowed_token_ids": [2, 3, 5, 7, 10]},
    "min_tokens": {"min_tokens": 8},
    "stop_token_ids": {"stop_token_ids": [3, 4]},
    "stop": {"stop": ["ab", "cd", "e"], "min_tokens": 5},
    "ignore_eos": {"ignore_eos": True, "stop_token_ids": [9]},
    "everything": {
        "top_k": 8,
        "top_p": 0.95,
        "min_p": 0.01,
        "typical_p": 0.95,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.3,
        "frequency_penalty": 0.2,
        "logit_bias": {2: 1.0},
        "bad_words": ["bc", "h"],
        "allowed_token_ids": list(range(1, 11)),
        "min_tokens": 6,
        "stop_token_ids": [3],
        "stop": ["ik"],
    },
}


def run(drafter, k, seeds, **settings):
    params = SamplingParams(**{"max_tokens": 20, "logprobs": 3, "prompt_logprobs": 2, **settings})
    stepper = make_stepper(TARGET, eos_ids=EOS, drafter=drafter, k=k)
    sequences = answer(stepper, [PROMPT] * len(seeds), params, seeds=seeds, max_sequences=3)
    return [(result_of(one), [token.logprobs for token in one.emitted], one.prompt_logprobs) for one in sequences]


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_seeded_or_greedy_answer_is_the_same_with_any_draft_and_with_none(setting, temperature):
    """Text, tokens, reason and log probabilities, to the bit."""
    settings = {"temperature": temperature, "seed": 0, **SETTINGS[setting]}
    seeds = list(range(6)) if temperature else [0]
    plain = run(None, 0, seeds, **settings)
    for drafter, k in product(DRAFTERS, [1, 4]):
        assert run(DRAFTERS[drafter](), k, seeds, **settings) == plain, drafter


@pytest.mark.parametrize("setting", SETTINGS)
def test_each_setting_changes_some_answer(setting):
    """Or the test above would prove nothing."""
    changed = [
        run(None, 0, [1, 2, 3, 4, 5], temperature=0.9, seed=0, **settings) for settings in ({}, SETTINGS[setting])
    ]
    assert changed[0] != changed[1]


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_settings_are_kept_under_every_rule(drafter, rule):
    """What no law test notices at once: nothing excluded is ever said, by no rule and no draft."""
    params = SamplingParams(temperature=1.5, max_tokens=20, **SETTINGS["everything"])
    stepper = make_stepper(TARGET, eos_ids=EOS, drafter=DRAFTERS[drafter](), k=4, rule=rule)
    for one in answer(stepper, [PROMPT] * 20, params, seeds=list(range(20)), max_sequences=7):
        ids, text, reason = result_of(one)
        assert "bc" not in text
        assert "h" not in text
        assert not {0, 7} & set(ids[:6])
        assert not {3, 9} & set(ids[:6])
        assert (ids[-1] in {3, 7, 9} or "ik" in "".join(chr(97 + i) for i in ids)) == (reason == "stop")


SMALL = HashLM(vocab_size=3, seed=5)
STATEFUL = {
    "frequency_penalty": {"frequency_penalty": 1.0, "presence_penalty": -0.5},
    "repetition_penalty": {"repetition_penalty": 2.0, "logit_bias": {1: 0.5}},
    "bad_words": {"bad_words": ["ab", "cc"]},
}


def stateful_law(settings):
    """The law of the next token of SMALL after PROMPT_OF_SMALL, written down token by token."""

    def law(prefix):
        output, values = prefix[len(PROMPT_OF_SMALL) :], []
        for token_id, weight in enumerate(SMALL.weights(prefix)):
            value = math.log(weight) + settings.get("logit_bias", {}).get(token_id, 0.0)
            if token_id in prefix and "repetition_penalty" in settings:
                value *= 0.5 if value > 0 else 2.0
            value -= settings.get("frequency_penalty", 0.0) * output.count(token_id)
            value -= settings.get("presence_penalty", 0.0) * (token_id in output)
            text = "".join(chr(97 + i) for i in (*output, token_id))
            values.append(0.0 if text.endswith(tuple(settings.get("bad_words", ("-",)))) else math.exp(value))
        exact = np.array([Fraction(value) for value in values])
        return exact / exact.sum()

    return law


PROMPT_OF_SMALL = (0, 1)


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize("setting", STATEFUL)
@pytest.mark.parametrize("drafts", ["draft model", "always the same"])
def test_the_law_of_an_answer_is_the_targets_through_rounds_and_commits(drafts, setting, rule):
    """Every random decision of whole answers is enumerated; float32 logits leave some 1e-7."""
    params = SamplingParams(temperature=1.0, max_tokens=3, **STATEFUL[setting])

    def one_answer(coins):
        drafter = PlannedDrafter(lambda context: (2, 2))
        if drafts == "draft model":
            drafter = DraftModelDrafter(ToyBackend(HashLM(3, seed=9)), vocab_size=3, name="toy")
        stepper = make_stepper(SMALL, drafter=drafter, k=2, rule=rule)
        sequence = stepper.open(Request(0, PROMPT_OF_SMALL, compiled(params, 3), seed=0))
        sequence.coins = SameCoins(coins)
        while sequence.finish_reason is None:
            stepper.step([sequence])
        assert sequence.is_drafting, sequence.draft_problem
        return tuple(sequence.token_ids[len(PROMPT_OF_SMALL) :])

    wanted = sequence_law(stateful_law(STATEFUL[setting]), 3, PROMPT_OF_SMALL)
    assert float(total_variation(outcomes(one_answer), wanted)) < 1e-6


# --- where an answer ends


def test_stop_tokens_end_the_answer_wherever_they_stand_and_add_no_text():
    for offset in range(1, 12):
        plan = PlannedDrafter(lambda context: [(context[-1] + i) % 11 for i in range(1, 6)])
        params = SamplingParams(
            temperature=1.0, allowed_token_ids=range(11), stop_token_ids=[offset % 11], ignore_eos=True
        )
        stepper = make_stepper(Counting(), eos_ids={0}, drafter=plan, k=5)
        (one,) = answer(stepper, [(0,)], params)
        ids, text, reason = result_of(one)
        assert ids == [i % 11 for i in range(1, offset + 1)]
        assert (text, reason) == ("".join(chr(97 + i) for i in range(1, offset)), "stop")


class Counting:
    """Says 1, 2, ... 10, 0, 1, ..."""

    vocab_size = 11

    def weights(self, prefix):
        return tuple(int(i == (prefix[-1] + 1) % 11) for i in range(11))


@pytest.mark.parametrize("k", [0, 5])
@pytest.mark.parametrize(("min_tokens", "length"), [(0, 3), (2, 3), (3, 14), (13, 14), (14, 20)])
def test_min_tokens_holds_for_stop_strings_too(min_tokens, length, k):
    plan = PlannedDrafter(lambda context: [(context[-1] + i) % 11 for i in range(1, 6)])
    params = SamplingParams(max_tokens=20, stop=["d"], min_tokens=min_tokens)
    (one,) = answer(make_stepper(Counting(), drafter=plan, k=k), [(0,)], params)
    ids, text, _ = result_of(one)
    assert len(ids) == length
    whole = "".join(chr(97 + i) for i in ids)
    assert text == (whole[:-1] if length < 20 else whole)


def test_a_stop_inside_a_round_leaves_no_randomness_used():
    """onnxruntime-genai#2528: what came after a stop string depended on how far the draft had looked."""
    for draft in (None, "ngram", toy_model(seed=1), PlannedDrafter(lambda context: [64, 65] * 3)):
        one = LLM(toy_model(), draft)
        params = SamplingParams(max_tokens=30, temperature=1.0, seed=5, allowed_token_ids=range(64, 70))
        whole = one.generate("a", params)[0]
        stopped = one.generate("a", replace(params, stop=[whole.text[9:11]]))[0]
        assert stopped.finish_reason == "stop"
        assert whole.text.startswith(stopped.text)
        follow_up = one.generate("a" + stopped.text, params)[0].token_ids
        assert follow_up == LLM(toy_model()).generate("a" + stopped.text, params)[0].token_ids


def test_usage_counts_nothing_past_the_end():
    """sglang#39826."""
    for draft in (None, PlannedDrafter(lambda context: [70, 71, EOS_ID, 72, 73])):
        params = SamplingParams(temperature=1.0, seed=2, logit_bias={EOS_ID: 16.0, 70: 15.0, 71: 15.0})
        (output,) = LLM(toy_model(), draft).generate("a", params)
        assert output.usage.completion_tokens == len(output.token_ids)
        assert output.token_ids.index(EOS_ID) == len(output.token_ids) - 1


# --- log probabilities


def softmax(logits):
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def model_logits(prefix):
    return np.log(np.array(TARGET.weights(prefix))).astype(np.float32)


@pytest.mark.parametrize("drafter", ["draft model", "ngram", "always the same"])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_are_of_the_processed_law_at_each_token(drafter, temperature):
    """vllm#17876, llama.cpp#27972: missing, zero, or those of another position."""
    settings = {"temperature": temperature, "logit_bias": {2: 2.0}, "logprobs": 4, "seed": 0}
    ((ids, _, _), logprobs, _) = run(DRAFTERS[drafter](), 4, [5], **settings)[0]
    for place, (token_id, one) in enumerate(zip(ids, logprobs, strict=True)):
        logits = model_logits((*PROMPT, *ids[:place]))
        logits[2] += 2.0
        law = softmax(logits / np.float32(temperature or 1.0))
        assert one.logprob == pytest.approx(math.log(law[token_id]), abs=1e-5)
        assert [top_id for top_id, _ in one.top] == np.argsort(-law, kind="stable")[:4].tolist()
        assert [value for _, value in one.top] == pytest.approx(np.log(-np.sort(-law)[:4]), abs=1e-5)


def test_prompt_logprobs_are_of_the_models_law_as_it_is():
    """vllm#53488. Over more tokens than are looked at in one pass."""
    prompt = tuple(int(i) for i in np.random.default_rng(0).integers(0, 11, 71))
    params = SamplingParams(max_tokens=2, prompt_logprobs=1, temperature=0.5, logit_bias={3: 50.0})
    (one,) = answer(make_stepper(TARGET), [prompt], params)
    assert one.prompt_logprobs[0] is None
    for place, found in enumerate(one.prompt_logprobs[1:], start=1):
        law = softmax(model_logits(prompt[:place]))
        assert found.logprob == pytest.approx(math.log(law[prompt[place]]), abs=1e-6)
        assert found.top[0][0] == law.argmax()
    (without,) = answer(
        make_stepper(TARGET), [prompt], SamplingParams(max_tokens=2, temperature=0.5, logit_bias={3: 50.0})
    )
    assert without.token_ids == one.token_ids
    assert without.prompt_logprobs is None


# --- drafts under settings


def test_a_draft_model_that_may_say_nothing_drafts_nothing():
    drafter = draft_model(vocab_size=6)
    params = SamplingParams(max_tokens=9, temperature=1.0, allowed_token_ids=[6, 8, 10])
    (one,) = answer(make_stepper(TARGET, drafter=drafter, k=4), [PROMPT], params)
    assert len(one.emitted) == 9
    assert one.counters.num_drafts == 0


def test_a_draft_model_shapes_its_law_as_the_target_does():
    """The target drafting for itself is always right, whatever is switched on."""
    for setting, temperature in product(SETTINGS, [0.0, 0.8]):
        params = SamplingParams(**{"max_tokens": 20, "temperature": temperature, "seed": 1, **SETTINGS[setting]})
        stepper = make_stepper(TARGET, eos_ids=EOS, drafter=DRAFTERS["the target itself"](), k=3)
        (one,) = answer(stepper, [PROMPT], params)
        assert one.counters.num_rejections == 0, setting


# --- the front door


def llm(draft=None, **options):
    return LLM(toy_model(), draft, **options)


def test_n_answers_come_one_after_the_other_each_with_its_own_randomness():
    params = [SamplingParams(max_tokens=12, temperature=1.0, seed=4, n=n) for n in (3, 1, 2)]
    outputs = llm("ngram", max_sequences=4).generate(["one", "two", "one"], params)
    assert len(outputs) == 6
    texts = [output.token_ids for output in outputs]
    assert texts[:2] == texts[4:6]
    assert len({*texts[:3]}) == 3
    assert llm().generate("one", params[1])[0].token_ids == texts[0]


def test_unseeded_answers_are_independent():
    outputs = llm().generate("one", SamplingParams(max_tokens=12, temperature=1.0, n=4))
    assert len({output.token_ids for output in outputs}) == 4


def test_a_stream_refuses_n_by_name():
    with pytest.raises(UsageError, match="n is 2; it must be from 1 to 1"):
        llm().stream("one", SamplingParams(n=2))


def test_output_has_logprobs_only_if_asked():
    (output,) = llm().generate("one", SamplingParams(max_tokens=3))
    assert output.logprobs is None
    assert output.prompt_logprobs is None
    (output,) = llm("ngram").generate("one", SamplingParams(max_tokens=3, logprobs=0, prompt_logprobs=0))
    assert len(output.logprobs) == 3
    assert len(output.prompt_logprobs) == output.usage.prompt_tokens


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"logit_bias": {999: 1.0}}, "logit_bias has token id 999"),
        ({"allowed_token_ids": [999]}, "allowed_token_ids has token id 999"),
        ({"stop_token_ids": [999]}, "stop_token_ids has token id 999"),
        ({"allowed_token_ids": [EOS_ID], "min_tokens": 1}, "allowed_token_ids"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_before_anything_is_generated(settings, said):
    one = llm("ngram")
    with pytest.raises(UsageError, match=said):
        one.generate(["fine", "not fine"], [SamplingParams(), SamplingParams(**settings)])
    with pytest.raises(UsageError, match=said):
        one.stream("not fine", SamplingParams(**settings))
    assert one.generate("fine", SamplingParams(max_tokens=2))[0].usage.completion_tokens == 2


def test_bad_words_are_cut_by_the_models_tokenizer():
    one = llm("ngram")
    settings = {"allowed_token_ids": one.encode("ab", chat=False), "bad_words": ["aa", "bb"]}
    (output,) = one.generate("ab" * 20, SamplingParams(max_tokens=40, temperature=1.0, seed=2, **settings))
    assert output.text in {"ab" * 20, "ba" * 20}
