"""Answers that follow a grammar, whatever the draft proposes and wherever in a round the grammar ends."""

import json
import re

import pytest
from engine_fakes import PlannedDrafter
from toy_llm import EOS_ID, toy_model, toy_tokenizer

from outrider import LLM, SamplingParams
from outrider.drafters.ngram import NgramDrafter
from outrider.errors import UsageError

SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["ab", "abc", "d"]}, "ok": {"type": "boolean"}},
    "required": ["name", "ok"],
    "additionalProperties": False,
}
FORMATS = {
    "json_schema": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
    "regex": {"type": "regex", "regex": "[ab]{3,9}(é|!)c?"},
    "grammar": {"type": "grammar", "grammar": 'start: "(" (start | "x" | "yy")? ")"'},
}
ENCODE = toy_tokenizer().encode
LONG = ENCODE('{"name":"abc","ok":true}}')


def at_every_offset(wrong):
    """Propose eight tokens, right ones as far as a number that changes, then a wrong one."""

    def plan(context):
        start = next((n for n in range(len(LONG), 0, -1) if list(context[-n:]) == LONG[:n]), 0)
        return [*LONG[start : start + len(context) % 8], wrong, wrong, *LONG[start:]][:8]

    return lambda: PlannedDrafter(plan)


DRAFTS = {
    "none": lambda: None,
    "draft model": lambda: toy_model(seed=1, name="small"),
    "draft model with a short context": lambda: toy_model(seed=1, max_length=70),
    "the target": lambda: toy_model(),
    "ngram": NgramDrafter,
    "illegal text": at_every_offset(ENCODE("x")[0]),
    "an end too early": at_every_offset(EOS_ID),
    "control tokens": at_every_offset(256),
}


def generate(draft, **settings):
    llm = LLM(toy_model(), DRAFTS[draft](), num_speculative_tokens=None if draft == "none" else 8)
    params = SamplingParams(**{"max_tokens": 60, "n": 4, "seed": 1, **settings})
    return [(one.text, one.token_ids, one.finish_reason) for one in llm.generate("Hello", params)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", FORMATS)
def test_the_answer_is_the_same_with_any_draft_and_with_none(kind, temperature):
    """vllm#9423, TRT-LLM#7878, sglang#9187: truncated, or a crash, with drafts."""
    settings = {"temperature": temperature, "response_format": FORMATS[kind]}
    plain = generate("none", **settings)
    for draft in DRAFTS:
        assert generate(draft, **settings) == plain, draft


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_finished_answer_is_what_was_asked_for(draft, rule):
    llm = LLM(toy_model(), DRAFTS[draft](), rule=rule)
    compact = {**SCHEMA, "x-guidance": {"whitespace_flexible": False}}
    asked = [{"type": "json_schema", "json_schema": {"schema": compact}}, FORMATS["regex"]]
    checks = [json.loads, re.compile(FORMATS["regex"]["regex"]).fullmatch]
    for response_format, check in zip(asked, checks, strict=True):
        params = SamplingParams(max_tokens=60, temperature=1.0, n=12, seed=3, response_format=response_format)
        for one in llm.generate("Hello", params):
            assert one.finish_reason == "stop"
            assert one.token_ids[-1] == EOS_ID
            assert check(one.text) is not None


@pytest.mark.parametrize("length", range(1, 9))
def test_a_grammar_that_ends_within_a_round_ends_the_answer(length):
    """sglang#21723: the answer went on after the grammar's end."""
    llm = LLM(toy_model(), PlannedDrafter(lambda context: ENCODE("aaaaaaaa")))
    response_format = {"type": "regex", "regex": f"a{{{length}}}"}
    (one,) = llm.generate("Hello", SamplingParams(response_format=response_format))
    assert (one.text, one.finish_reason) == ("a" * length, "stop")
    assert one.token_ids == (*ENCODE("a" * length), EOS_ID)


@pytest.mark.parametrize("offset", range(6))
def test_a_grammar_after_a_marker_begins_exactly_there(offset):
    """vllm#44993: answers that began with ``{{`` since the state had moved twice."""
    grammar = f'start: /[a-z]{{{offset}}}/ <|start|> "{{" /[0-9]/ "}}"'
    draft = [*ENCODE("hello"[:offset]), 256, *ENCODE("{7}{7}")]
    llm = LLM(toy_model(), PlannedDrafter(lambda context: draft), num_speculative_tokens=8)
    plain = LLM(toy_model())
    params = SamplingParams(temperature=1.0, n=6, seed=0, response_format={"type": "grammar", "grammar": grammar})
    for one, other in zip(llm.generate("Hello", params), plain.generate("Hello", params), strict=True):
        assert re.fullmatch(f"[a-z]{{{offset}}}{{[0-9]}}", one.text)
        assert one.token_ids == other.token_ids


def test_max_tokens_cuts_an_answer_short_and_says_so():
    ((text, _, reason), *_) = generate("draft model", response_format=FORMATS["json_schema"], max_tokens=3)
    assert reason == "length"
    assert text[0] == "{"


def test_logprobs_are_those_of_what_the_grammar_allows():
    (one,) = LLM(toy_model()).generate(
        "Hello", SamplingParams(logprobs=5, response_format={"type": "regex", "regex": "a(b|c)"})
    )
    assert one.logprobs[0].logprob == one.logprobs[-1].logprob == 0.0
    assert one.logprobs[0].top == ((ENCODE("a")[0], 0.0),)
    assert [token_id for token_id, _ in sorted(one.logprobs[1].top)] == sorted(ENCODE("bc"))


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "regex", "regex": "("},
        {"type": "json_schema", "json_schema": {"schema": {"enum": []}}},
        {"type": "grammar", "grammar": "start: missing"},
    ],
)
def test_a_grammar_that_cannot_be_is_refused_before_anything_is_generated(response_format):
    llm = LLM(toy_model(), "ngram")
    params = [SamplingParams(), SamplingParams(response_format=response_format)]
    with pytest.raises(UsageError, match="response_format cannot be honoured"):
        llm.generate(["fine", "not fine"], params)
    assert llm.generate("fine", SamplingParams(max_tokens=2))[0].usage.completion_tokens == 2
