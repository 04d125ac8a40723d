"""What callers give the front door by mistake is named as they gave it, and never a TypeError from within."""

import re
from pathlib import Path

import pytest
from toy_llm import toy_model

from outrider import LLM, SamplingParams
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.prompts import encode_beginning
from outrider.errors import OutriderError, UsageError

LLM_OF_TOY = LLM(toy_model())
MESSAGE = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("wrong", [None, 5, b"m.gguf", ["m.gguf"], "", "a\0b", Path("a\0b"), LLM_OF_TOY])
def test_a_target_that_is_no_reference_is_refused(wrong):
    with pytest.raises(UsageError, match=r"^target is .*; it must be a path, a catalog name, hf:owner/repo"):
        LLM(wrong)


@pytest.mark.parametrize("wrong", [5, b"ngram", {"ngram": 1}, "", LLM_OF_TOY, NgramDrafter, object(), Path("a\0b")])
def test_a_draft_that_is_no_draft_is_refused(wrong):
    with pytest.raises(UsageError, match=r"^draft is .*; it must be .* a drafter or None"):
        LLM(toy_model(), wrong)


@pytest.mark.parametrize("wrong", ["no/such.gguf", "hf:not a repository", "ngarm"])
def test_a_draft_that_is_not_to_be_had_is_called_the_draft(wrong):
    with pytest.raises(OutriderError, match=r"^draft: "):
        LLM(toy_model(), wrong)


WRONG_PROMPTS = [
    (5, "is 5; it must be text"),
    (None, "is None; it must be text"),
    (b"x", "is b'x'; it must be text"),
    ({"role": "user", "content": "hi"}, "is {'content': 'hi', 'role': 'user'}; it must be text"),
    ((message for message in MESSAGE), "is <generator"),
    ([{}], "message 0 has None for \"role\""),
    ([{"role": "user"}], "message 0 has None for \"content\""),
    ([{"role": "user", "content": 5}], "message 0 has 5 for \"content\""),
    ([{"role": "", "content": "hi"}], "message 0 has '' for \"role\""),
    ([*MESSAGE, "hi"], "message 1 is 'hi'; a message is a mapping"),
    ([{"role": "user", "content": "hi\udcff"}], r"message 0's content holds the lone surrogate U\+DCFF at position 2"),
    ("hi\udcff", r"the prompt holds the lone surrogate U\+DCFF at position 2"),
    ("", "the prompt is empty"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), WRONG_PROMPTS)
@pytest.mark.parametrize("call", [LLM_OF_TOY.generate, LLM_OF_TOY.stream, LLM_OF_TOY.encode])
def test_a_prompt_that_is_none_is_refused(call, wrong, message):
    with pytest.raises(UsageError, match=message):
        call(wrong)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([5], "the prompt is 5"),
        (["fine", 5], r"prompts\[1\]: the prompt is 5"),
        ([["a"]], "message 0 is 'a'"),
        ([[]], "the prompt is empty"),
        (["fine", b"x"], r"prompts\[1\]: the prompt is b'x'"),
    ],
)
def test_one_wrong_prompt_of_many_is_named(wrong, message):
    with pytest.raises(UsageError, match=message):
        LLM_OF_TOY.generate(wrong)


@pytest.mark.parametrize("wrong", [5, "greedy", {"temperature": 1}, [None], ["greedy"], SamplingParams])
def test_params_of_another_type_are_refused(wrong):
    with pytest.raises(UsageError, match=r"^params(\[0\])? is .*; it must be SamplingParams"):
        LLM_OF_TOY.generate("hi", wrong)
    with pytest.raises(UsageError, match=r"^params(\[0\])? is .*; it must be SamplingParams"):
        LLM_OF_TOY.stream("hi", wrong)


def test_what_is_right_goes_through():
    short = SamplingParams(max_tokens=2)
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    for prompt in ("hi", MESSAGE, tuple(MESSAGE), [*MESSAGE, call], [MESSAGE], ["hi"]):
        assert len(LLM_OF_TOY.generate(prompt, short)) == 1
    assert LLM_OF_TOY.generate([]) == []
    assert len(LLM_OF_TOY.generate(["hi", MESSAGE], (short, short))) == 2


@pytest.mark.parametrize("text", ["", "a", "ab" * 500, "wide " + "x" * 5000 + "abc" * 50])
@pytest.mark.parametrize("num_tokens", [1, 3, 50, 10**6])
def test_the_beginning_of_a_text_is_that_of_the_whole(text, num_tokens):
    longest = 0

    def encode(part):  # runs of x are one token
        nonlocal longest
        longest = max(longest, len(part))
        return [ord(found[0][0]) for found in re.finditer("x+|[^x]", part)]

    assert encode_beginning(encode, text, num_tokens) == encode(text)[:num_tokens]


def test_no_more_of_a_text_is_encoded_than_is_needed():
    lengths = []

    def encode(part):
        lengths.append(len(part))
        return list(range(len(part) // 3))

    assert encode_beginning(encode, "x" * 10**6, 100) == list(range(100))
    assert sum(lengths) < 3000
