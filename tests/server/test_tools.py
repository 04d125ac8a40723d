"""Calls of tools, found in what the model says, wherever its text is cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_llm import EOS_ID, toy_tokenizer
from toy_server import TOOLS_TEMPLATE, ask, toy_llm

from outrider.backends.toy import ToyBackend
from outrider.engine.outputs import EmittedToken, Origin
from outrider.server.engine import Event
from outrider.server.replies import ChatChoice, Style
from outrider.server.tools import Call, CallParser

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
PARSED = Call("weather", '{"city": "Zürich"}')
TEXTS = {
    "a call": (CALL, ["", PARSED]),
    "text around calls": (f"Let me see. {CALL}\n{CALL} Done.", ["Let me see. ", PARSED, "\n", PARSED, " Done."]),
    "no call": ("a < b and <tool", ["a < b and <tool"]),
    "a call that does not end": ('<tool_call>{"name"', ['<tool_call>{"name"']),
    "a call that is no JSON": ("<tool_call>weather</tool_call>", ["<tool_call>weather</tool_call>"]),
    "a call of no name": ('<tool_call>{"a": 1}</tool_call>', ['<tool_call>{"a": 1}</tool_call>']),
    "a call of nobody": ('<tool_call>{"name": 1}</tool_call>', ['<tool_call>{"name": 1}</tool_call>']),
    "a call without arguments": ('<tool_call>{"name": "f"}</tool_call>', [Call("f", "{}")]),
    "a call between fences": ('```json\n{"name": "weather", "arguments": {"city": "Zürich"}}\n``` ok', [PARSED, " ok"]),
    "other JSON between fences": (
        '```json\n{"name": "f", "arguments": {}}\n```',
        ['```json\n{"name": "f", "arguments": {}}\n```'],
    ),
    "fences that do not end": ('```json\n{"name": "weather"}', ['```json\n{"name": "weather"}']),
    "half a surrogate pair": (
        '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>',
        ['<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>'],
    ),
    "half a surrogate pair in a name": (
        '<tool_call>{"name": "\\ud800"}</tool_call>',
        ['<tool_call>{"name": "\\ud800"}</tool_call>'],
    ),
    "what is no number in JSON": (
        '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>',
        ['<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'],
    ),
    "deep arguments": (f"<tool_call>{'[' * 10**5}</tool_call>", [f"<tool_call>{'[' * 10**5}</tool_call>"]),
}


def joined(found):
    """Return texts that follow one another as one."""
    whole = []
    for one in found:
        if isinstance(one, str) and whole and isinstance(whole[-1], str):
            whole[-1] += one
        else:
            whole.append(one)
    return [one for one in whole if one != ""]


@pytest.mark.parametrize("name", TEXTS)
def test_calls_and_text_are_told_apart(name):
    text, expected = TEXTS[name]
    parser = CallParser(["weather"])
    assert joined([*parser.feed(text), *parser.finish()]) == joined(expected)


@given(st.sampled_from([name for name in TEXTS if name != "deep arguments"]), st.lists(st.integers(1, 9), min_size=1))
def test_it_does_not_matter_where_the_text_is_cut(name, sizes):
    text, expected = TEXTS[name]
    parser, found, start, turn = CallParser(["weather"]), [], 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        found += parser.feed(text[start : start + size])
        start, turn = start + size, turn + 1
    assert joined([*found, *parser.finish()]) == joined(expected)


class Says:
    """Says a text after a prompt, whatever that is."""

    vocab_size = 259

    def __init__(self, text, prompt_length):
        self.script = [*toy_tokenizer().encode(text), EOS_ID]
        self.prompt_length = prompt_length

    def weights(self, prefix):
        place = len(prefix) - self.prompt_length
        token_id = self.script[place] if 0 <= place < len(self.script) else EOS_ID
        return tuple(int(index == token_id) for index in range(259))


def saying(text, tools=(WEATHER,)):
    length = len(
        toy_llm(template=TOOLS_TEMPLATE, max_length=2000).encode([{"role": "user", "content": "hi"}], tools=list(tools))
    )
    return toy_llm(template=TOOLS_TEMPLATE, backend=ToyBackend(Says(text, length), 2000))


def test_calls_are_told_whole_and_streamed():
    async def test(client):
        whole = (await client.chat(tools=[WEATHER], max_tokens=300)).json()["choices"][0]
        body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "tools": [WEATHER]}
        return whole, await client.stream("/v1/chat/completions", body)

    whole, stream = ask(test, saying(f"Look: {CALL}{CALL}"))
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] == "Look: "
    calls = whole["message"]["tool_calls"]
    assert [call["function"] for call in calls] == [{"name": "weather", "arguments": '{"city": "Zürich"}'}] * 2
    assert len({call["id"] for call in calls}) == 2
    choices = [chunk["choices"][0] for chunk in stream[:-1]]
    streamed = [call for one in choices for call in one["delta"].get("tool_calls", ())]
    assert [(call["index"], call["function"]) for call in streamed] == list(
        enumerate(call["function"] for call in calls)
    )
    assert "".join(one["delta"].get("content") or "" for one in choices) == "Look: "
    assert choices[-1]["finish_reason"] == "tool_calls"


def test_without_tools_a_call_is_text():
    async def test(client):
        return (await client.chat(max_tokens=300)).json()["choices"][0]

    choice = ask(test, saying(CALL, ()))
    assert choice["message"] == {"role": "assistant", "content": CALL}
    assert choice["finish_reason"] == "stop"


def test_a_call_can_be_insisted_on():
    async def test(client):
        named = {"type": "function", "function": {"name": "weather"}}
        replies = [
            await client.chat(tools=[WEATHER], tool_choice=choice, max_tokens=350) for choice in ("required", named)
        ]
        return [reply.json()["choices"][0] for reply in replies]

    # A model that always says the letter a, where it may; the grammar makes a call of it.
    class Letters:
        vocab_size = 259

        def weights(self, prefix):
            likes = {token_id: 10**6 - place for place, token_id in enumerate(toy_tokenizer().encode('"}a]'))}
            return tuple(likes.get(index, 1) for index in range(259))

    for choice in ask(test, toy_llm(template=TOOLS_TEMPLATE, backend=ToyBackend(Letters(), 900))):
        (call,) = choice["message"]["tool_calls"]
        assert call["function"]["name"] == "weather"
        assert set(json.loads(call["function"]["arguments"])) >= {"city"}


def test_what_was_called_and_answered_can_be_sent_back():
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Zürich"}'}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
    ]

    async def test(client):
        good = await client.chat(tools=[WEATHER], messages=messages)
        messages[1]["tool_calls"][0]["function"]["arguments"] = "no JSON"
        bad = await client.chat(tools=[WEATHER], messages=messages)
        none = await client.chat(tools=[WEATHER], tool_choice="none")
        plain = await client.chat()
        return good, bad, none.json()["usage"] == plain.json()["usage"]

    good, bad, is_plain = ask(test, toy_llm(template=TOOLS_TEMPLATE, max_length=2000))
    assert good.status_code == 200
    assert bad.status_code == 400
    assert bad.json()["error"]["param"] == "messages[1].tool_calls"
    assert is_plain


def test_two_calls_of_one_round_have_numbers_of_their_own():
    choice = ChatChoice(0, Style(words=None, tools=["weather"]), "chatcmpl-1")
    event = Event(0, (EmittedToken(1, Origin.PLAIN, CALL + CALL),))
    deltas = [chunk["delta"] for chunk in choice.add(event)]
    assert [call["index"] for delta in deltas for call in delta["tool_calls"]] == [0, 1]
