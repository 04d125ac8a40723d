"""The front door: prompts in, answers with an account of themselves out."""

import json
from itertools import count

import numpy as np
import pytest
from engine_fakes import PlannedDrafter
from small_vocabularies import BYTES, byte_level
from toy_llm import EOS_ID, toy_model

from outrider import LLM, SamplingParams
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.loading import Model
from outrider.engine.outputs import Origin
from outrider.errors import ContextLengthError, IncompatibleDraftError, UsageError
from outrider.types import Draft

GREEDY = SamplingParams(max_tokens=20)
SAMPLED = SamplingParams(max_tokens=20, temperature=1.0)


def make(draft=None, **options):
    return LLM(toy_model(), draft, **options)


DRAFTS = {
    "none": lambda: None,
    "draft model": lambda: toy_model(seed=1, name="small"),
    "draft model with other padding": lambda: toy_model(seed=1, num_unused=9),
    "draft model with wider logits": lambda: toy_model(seed=1, width=300),
    "draft model with a short context": lambda: toy_model(seed=1, max_length=40),
    "the target": lambda: toy_model(),
    "ngram": lambda: "ngram",
    "drafter": lambda: PlannedDrafter(lambda context: (65, 66)),
}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("prompt", ["Hello", "Grüße \U0001f642", "x" * 90])
def test_the_draft_does_not_change_the_answer(draft, prompt):
    for params in (GREEDY, SamplingParams(max_tokens=20, temperature=1.0, seed=3)):
        (plain,) = make().generate(prompt, params)
        (answer,) = make(DRAFTS[draft]()).generate(prompt, params)
        assert (answer.text, answer.token_ids, answer.finish_reason) == (
            plain.text,
            plain.token_ids,
            plain.finish_reason,
        )


def test_many_prompts_come_back_in_order_each_with_its_own_params():
    prompts = ["one", "two", [{"role": "user", "content": "three"}], "four"]
    params = [SamplingParams(max_tokens=n) for n in (9, 3, 30, 1)]
    together = make("ngram", max_sequences=3).generate(prompts, params)
    for prompt, one, answer in zip(prompts, params, together, strict=True):
        assert make().generate(prompt, one)[0].token_ids == answer.token_ids
        assert answer.usage.completion_tokens == len(answer.token_ids) == one.max_tokens


def test_messages_and_text_mean_the_same_and_raw_text_does_not():
    llm = make()
    chat = llm.encode("hi")
    assert chat == llm.encode([{"role": "user", "content": "hi"}])
    assert len(llm.encode("hi", chat=False)) == 2
    assert len(chat) > 2
    (answer,) = llm.generate([{"role": "user", "content": "hi"}], GREEDY)
    assert answer.token_ids == llm.generate("hi", GREEDY)[0].token_ids
    assert answer.token_ids != llm.generate("hi", GREEDY, chat=False)[0].token_ids


def test_a_model_without_a_template_takes_raw_text():
    llm = LLM(toy_model(has_template=False))
    assert llm.encode("hi") == llm.encode("hi", chat=False)


def test_what_spells_a_control_token_in_a_prompt_is_text():
    assert EOS_ID not in make().encode("<|end|>", chat=False)
    assert make().encode("a<|end|>b").count(EOS_ID) == make().encode("ab").count(EOS_ID)


def test_a_stream_is_the_answer_piece_by_piece():
    streaming, llm = (
        LLM(toy_model(is_sharp=True), toy_model(is_sharp=True), num_speculative_tokens=3) for _ in range(2)
    )
    chunks = list(streaming.stream("Hello \U0001f642", GREEDY))
    (whole,) = llm.generate("Hello \U0001f642", GREEDY)
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert tuple(token.token_id for chunk in chunks for token in chunk.tokens) == whole.token_ids
    assert [chunk.output for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    last = chunks[-1].output
    assert (last.text, last.token_ids, last.usage, last.speculation) == (
        whole.text,
        whole.token_ids,
        whole.usage,
        whole.speculation,
    )
    assert [token.origin for token in chunks[0].tokens] == [Origin.PLAIN]
    assert [Origin.ACCEPTED] * 3 + [Origin.BONUS] in [[token.origin for token in chunk.tokens] for chunk in chunks]


def test_two_streams_side_by_side_do_not_disturb_each_other():
    llm = make("ngram")
    one, other = llm.stream("one", GREEDY), llm.stream("other", GREEDY)
    texts = ["", ""]
    for chunk, another in zip(one, other, strict=False):
        texts[0] += chunk.text
        texts[1] += another.text
    texts[0] += "".join(chunk.text for chunk in one)
    texts[1] += "".join(chunk.text for chunk in other)
    assert texts == [llm.generate(prompt, GREEDY)[0].text for prompt in ("one", "other")]


def test_a_stream_that_is_dropped_frees_its_caches():
    target, draft = toy_model(), toy_model(seed=1)
    llm = LLM(target, draft)
    stream = llm.stream("Hello", GREEDY)
    next(stream)
    next(stream)
    assert target.backend._caches
    assert draft.backend._caches
    stream.close()
    assert not target.backend._caches
    assert not draft.backend._caches


def test_the_document_has_the_promised_fields():
    target, draft, ticks = toy_model(is_sharp=True), toy_model(is_sharp=True, name="small"), count()
    llm = LLM(target, [draft], num_speculative_tokens=3, clock=lambda: float(next(ticks)))
    (answer,) = llm.generate("Hello", SamplingParams(max_tokens=9))
    document = json.loads(json.dumps(answer.to_json()))
    timing = document.pop("timing")
    assert document == {
        "text": answer.text,
        "token_ids": list(answer.token_ids),
        "finish_reason": "length",
        "usage": {"prompt_tokens": len(llm.encode("Hello")), "completion_tokens": 9, "cached_tokens": 0},
        "speculation": {
            "active": True,
            "reason": "small proposes up to 3 tokens a round",
            "drafter": "small",
            "method": "greedy",
            "methods": {"greedy": 2},
            "tree": None,
            "num_drafts": 2,
            "num_draft_tokens": 6,
            "num_accepted_tokens": 6,
            "num_accepted_tokens_per_pos": [2, 2, 2],
            "acceptance_rate": 1.0,
            "mean_acceptance_length": 4.0,
            "sources": {"small": {"num_draft_tokens": 6, "num_accepted_tokens": 6}},
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    # The clock ticks once a reading, twice a round: load, one round of one token, two of four.
    assert timing == {"load_s": 1.0, "prefill_s": 1.0, "decode_s": 4.0, "tokens_per_s": 8 / 4}


def test_speculation_that_is_off_says_why():
    (plain,) = make().generate("Hello", GREEDY)
    assert plain.speculation.to_json() == {
        "active": False,
        "reason": "no draft was given",
        "drafter": None,
        "method": None,
        "methods": {},
        "tree": None,
        "num_drafts": 0,
        "num_draft_tokens": 0,
        "num_accepted_tokens": 0,
        "num_accepted_tokens_per_pos": [],
        "acceptance_rate": None,
        "mean_acceptance_length": None,
        "sources": {},
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    }
    (zero,) = make("ngram", num_speculative_tokens=0).generate("Hello", GREEDY)
    assert (zero.speculation.active, zero.speculation.reason) == (False, "num_speculative_tokens is 0")


def test_speculation_that_found_nothing_to_propose_is_on_with_zero_counts():
    llm = make(PlannedDrafter(lambda context: ()))
    (answer,) = llm.generate("Hello", GREEDY)
    done = answer.speculation.to_json()
    assert (done["active"], done["num_drafts"], done["method"], done["acceptance_rate"]) == (True, 0, None, None)


@pytest.mark.parametrize(
    ("draft", "params", "rule", "method"),
    [
        ("draft model", GREEDY, "auto", "greedy"),
        ("draft model", SAMPLED, "auto", "block"),
        ("draft model", SAMPLED, "token", "token"),
        ("drafter", SAMPLED, "auto", "point_mass"),
        ("drafter", SAMPLED, "token", "point_mass"),
        ("drafter", SAMPLED, "coupled", "coupled"),
        ("draft model", SamplingParams(max_tokens=20, temperature=1.0, seed=0), "auto", "coupled"),
    ],
)
def test_the_method_is_the_one_that_ran(draft, params, rule, method):
    (answer,) = make(DRAFTS[draft](), rule=rule, entropy=lambda: 1).generate("Hello", params)
    assert answer.speculation.method == method


def test_drafts_that_different_rules_verified_are_counted_by_rule():
    class Mixed(PlannedDrafter):
        def propose(self, requests):
            laws = np.full((1, toy_model().vocab_size), 1 / toy_model().vocab_size)
            return [Draft((5,), None if len(request.context_ids) % 3 else laws) for request in requests]

    (answer,) = make(Mixed(lambda context: ()), entropy=lambda: 1).generate("Hello", SAMPLED)
    done = answer.speculation.to_json()
    assert done["methods"].keys() == {"point_mass", "block"}
    assert sum(done["methods"].values()) == done["num_drafts"]
    assert done["method"] == max(done["methods"], key=done["methods"].get) == "point_mass"


def test_the_default_length_depends_on_the_drafter():
    asked = PlannedDrafter(lambda context: ())
    make(asked).generate("Hello", SamplingParams(max_tokens=100))
    assert max(asked.asked) == 6


def test_requests_without_a_seed_draw_from_the_given_entropy():
    texts = [make(entropy=lambda seed=seed: seed).generate("Hello", SAMPLED)[0].text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    same_llm = LLM(toy_model())
    assert len({same_llm.generate("Hello", SAMPLED)[0].text for _ in range(3)}) == 3


def test_every_seed_is_a_seed_zero_too():
    params = SamplingParams(max_tokens=20, temperature=1.0, seed=0)
    assert len({make(entropy=lambda other=other: other).generate("Hello", params)[0].text for other in (1, 2, 3)}) == 1


def test_a_draft_with_hardly_a_token_in_common_is_refused_with_the_reason():
    strange = Model("proteins", ToyBackend(HashLM(20)), byte_level("ACDEFGHIKLMNPQRSTVWY"), None, 200)
    with pytest.raises(IncompatibleDraftError, match=r"proteins as a draft for toy: it is refused: only \d%"):
        make(strange)


def test_a_tree_of_another_vocabulary_is_refused():
    reversed_ = byte_level(BYTES[::-1], controls=["<|stop|>", "<|end|>"])
    stranger = Model("stranger", ToyBackend(HashLM(258, seed=3)), reversed_, None, 200)
    with pytest.raises(UsageError, match="draft_tree is 8, but stranger has another vocabulary than toy"):
        make(stranger, draft_tree=8)


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(max_tokens=20, temperature=0.8, seed=4)])
def test_a_draft_with_another_vocabulary_changes_nothing(params):
    reversed_ = byte_level(BYTES[::-1], controls=["<|stop|>", "<|end|>"])
    stranger = Model("stranger", ToyBackend(HashLM(258, seed=3)), reversed_, None, 200)
    for draft in (stranger, toy_model(seed=1, swapped=True)):
        assert make(draft).generate("Hello", params)[0].token_ids == make().generate("Hello", params)[0].token_ids


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused(prompt):
    with pytest.raises(UsageError, match="empty"):
        make().stream(prompt, GREEDY)
    assert make().generate([], GREEDY) == []


def test_a_prompt_beyond_the_context_is_refused_with_both_numbers_before_anything_is_generated():
    assert len(make().encode("x" * 199, chat=False)) == 199
    with pytest.raises(ContextLengthError, match=r"the prompt has 200 tokens and the context holds 200.*up to 400"):
        make().stream("x" * 200, GREEDY, chat=False)
    with pytest.raises(ContextLengthError):
        make().generate(["fine", "x" * 500], GREEDY)


def test_an_answer_may_fill_the_context_to_the_last_token():
    (answer,) = make("ngram").generate("x" * 199, SamplingParams(max_tokens=50), chat=False)
    assert (len(answer.token_ids), answer.finish_reason) == (1, "length")
    (answer,) = make(toy_model()).generate("x" * 150, SamplingParams(max_tokens=100, ignore_eos=True), chat=False)
    assert (len(answer.token_ids), answer.finish_reason) == (50, "length")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_speculative_tokens": -1}, "num_speculative_tokens is -1; it must be from 0 to 64"),
        ({"num_speculative_tokens": 65}, "num_speculative_tokens is 65; it must be from 0 to 64"),
        ({"num_speculative_tokens": 2.5}, "num_speculative_tokens is 2.5; it must be a whole number from 0 to 64"),
        ({"num_speculative_tokens": True}, "num_speculative_tokens is True; it must be a whole number"),
        ({"num_speculative_tokens": "4"}, "num_speculative_tokens is '4'; it must be a whole number"),
        ({"max_sequences": 0}, "max_sequences is 0; it must be at least 1"),
        *[
            ({"max_sequences": bad}, f"max_sequences is {bad!r}; it must be a whole number at least 1")
            for bad in (2.5, True, "4", None)
        ],
        ({"threads": 0}, "threads is 0; it must be from 1 to 256"),
        ({"threads": 9999999999}, "threads is 9999999999; it must be from 1 to 256"),
        ({"ctx_size": "5"}, "ctx_size is .5.; it must be a whole number at least 2"),
        ({"threads": 1.5}, "threads is 1.5; it must be a whole number"),
        ({"rule": "blok"}, r"rule is 'blok'; did you mean 'block'\? it must be one of auto, token, block, coupled"),
        ({"rule": "lossy"}, "rule is 'lossy'; it must be one of auto, token, block, coupled"),
        ({"rule": None}, "rule is None; it must be one of"),
        *[
            ({"store": bad}, "store is .*; it must be the path of a directory")
            for bad in (3, b"/tmp/x", "", "a\0b", "\ud800", True)
        ],
        ({"draft_options": {"vocab": 9}}, "draft_options is .*; it must be DraftOptions, or None"),
        ({"draft_options": "vocab=9"}, "draft_options is 'vocab=9'; it must be DraftOptions, or None"),
    ],
)
def test_limits_are_checked(options, message):
    with pytest.raises(UsageError, match=message):
        make(**options)


def test_names_that_stand_for_another_draft_or_none():
    for draft, name in [("none", None), (None, None), ("auto", "ngram"), ("ngram", "ngram")]:
        assert make(draft).generate("Hello", GREEDY)[0].speculation.drafter == name


@pytest.mark.parametrize(
    ("prompts", "settings", "kind", "message"),
    [
        (["fine", ""], {}, UsageError, r"^prompts\[1\]: the prompt is empty"),
        (["fine", "fine", "x" * 500, ""], {}, ContextLengthError, r"^prompts\[2\]: the prompt has 5\d\d tokens"),
        (["fine", "\udcff"], {}, UsageError, r"^prompts\[1\]: .*surrogate"),
        (["fine", [{"role": "user", "content": "\udcff"}]], {}, UsageError, r"^prompts\[1\]: .*"),
        (["fine", "fine"], {"allowed_token_ids": [999]}, UsageError, r"^prompts\[0\]: allowed_token_ids has token id"),
        ([""], {}, UsageError, "^the prompt is empty"),
    ],
)
def test_a_bad_request_is_named_before_any_is_answered(prompts, settings, kind, message):
    target = toy_model()
    target.backend.forward = None  # nothing may be computed
    with pytest.raises(kind, match=message):
        LLM(target).generate(prompts, SamplingParams(**settings))


DRAFTERS = {
    "ngram": NgramDrafter,
    "draft model": lambda: DraftModelDrafter(toy_model(seed=1).backend, vocab_size=259, name="small"),
}


@pytest.mark.parametrize("shared", DRAFTERS)
def test_engines_may_share_a_drafter(shared):
    """Their requests are told apart, although neither engine knows of the other."""
    params = SamplingParams(max_tokens=20, temperature=1.0, seed=3, allowed_token_ids=range(97, 100))
    prompts = {0: "abc" * 9, 2: "x"}  # by the seed of the target
    drafter = DRAFTERS[shared]()
    streams = {seed: LLM(toy_model(seed), drafter).stream(prompts[seed], params) for seed in prompts}
    outputs = {}
    while len(outputs) < 2:
        for seed, stream in streams.items():
            chunk = next(stream, None)
            if chunk is not None and chunk.output is not None:
                outputs[seed] = chunk.output
    for seed, output in outputs.items():
        (alone,) = LLM(toy_model(seed), DRAFTERS[shared]()).generate(prompts[seed], params)
        assert (output.token_ids, output.speculation) == (alone.token_ids, alone.speculation)


def test_as_many_params_as_prompts():
    with pytest.raises(UsageError, match="1 params for 2 prompts"):
        make().generate(["a", "b"], [GREEDY])


def test_a_prediction_is_drafted_from_and_changes_nothing():
    model = toy_model(is_sharp=True)
    params = SamplingParams(max_tokens=60)
    (plain,) = LLM(model).generate("Hello", params)
    predicted = plain.text[:20] + "something else" + plain.text[20:]
    for draft in ("ngram", toy_model(seed=1, name="small")):
        llm = LLM(model, draft)
        (answer,) = llm.generate("Hello", params, prediction=predicted)
        assert answer.token_ids == plain.token_ids
        *_, last = llm.stream("Hello", params, prediction=predicted)
        assert last.output.token_ids == plain.token_ids
    done = answer.speculation
    assert done.accepted_prediction_tokens > 10
    assert done.rejected_prediction_tokens >= 0


def test_of_a_long_prediction_no_more_is_looked_at_than_an_answer_can_repeat():
    seen = set()

    class Seeing(PlannedDrafter):
        def propose(self, requests):
            seen.update(request.prediction_ids for request in requests)
            return super().propose(requests)

    model = toy_model(max_length=50)
    LLM(model, Seeing(lambda context: ())).generate("Hello", SamplingParams(max_tokens=3), prediction="abc" * 1000)
    assert seen == {tuple(model.tokenizer.encode("abc" * 1000)[:50])}


def test_predictions_go_with_their_prompts():
    llm = LLM(toy_model(is_sharp=True), "ngram")
    texts = [answer.text for answer in llm.generate(["one", "two"], GREEDY)]
    answers = llm.generate(["one", "two"], GREEDY, prediction=[None, texts[1]])
    assert [answer.speculation.accepted_prediction_tokens > 0 for answer in answers] == [False, True]


@pytest.mark.parametrize(
    ("prediction", "words"),
    [
        (5, "prediction is 5; it must be text"),
        (["a", "b"], "2 predictions for 1 prompts"),
        ([b"a"], "must be text or None"),
        ("\ud800", "the prediction"),
    ],
)
def test_a_prediction_that_is_none_is_refused(prediction, words):
    with pytest.raises(UsageError, match=words):
        make("ngram").generate("Hello", GREEDY, prediction=prediction)


def test_a_prediction_without_a_draft_is_refused():
    for llm in (make(), make("ngram", num_speculative_tokens=0)):
        with pytest.raises(UsageError, match="nothing drafts from it"):
            llm.generate("Hello", GREEDY, prediction="text")


def test_past_outputs_are_kept_and_drafted_from(tmp_path):
    model, params = toy_model(is_sharp=True), SamplingParams(max_tokens=60)
    (plain,) = LLM(model, "ngram").generate("Hello", params)
    LLM(model, "ngram", store=tmp_path).generate("Hello", params)
    (answer,) = LLM(model, "ngram", store=str(tmp_path)).generate("Hello", params)
    assert answer.token_ids == plain.token_ids
    assert answer.speculation.counters.sources["store"].num_accepted_tokens > 10
    assert [path.suffix for path in tmp_path.iterdir()] == [".texts"]
    LLM(toy_model(is_sharp=True, name="other"), "ngram", store=tmp_path).generate("Hello", params)
    assert len(list(tmp_path.iterdir())) == 2
