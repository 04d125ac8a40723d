"""Grammars: the state follows the committed tokens, looks past drafts, and is never asked when it is over."""

import json
import re

import numpy as np
import pytest
from llguidance import LLMatcher, LLParserLimits

from outrider.errors import UsageError
from outrider.sampling import Vocabulary
from outrider.sampling.grammar import Grammar
from outrider.sampling.response_format import GrammarSource, grammar_source
from outrider.sampling.vocabulary import _Wrapped

EOS, OTHER_EOS, THINK_END, UNUSED = 257, 258, 259, 260
WORDS = [b'{"', b'":', b'"}', b"true", b"}}", "é".encode(), "é".encode()[:1]]


class Bytes:
    """A token for each byte, four that are no text, and a few of more than a byte."""

    eos_ids = (OTHER_EOS, EOS)
    special_ids = (256, EOS, THINK_END)
    tokens = (*(bytes([i]) for i in range(256)), b"", b"", b"", b"", b"", *WORDS)
    pieces = (*map(chr, range(256)), "<s>", "</s>", "<turn>", "</think>", "<unused>", *(["?"] * len(WORDS)))

    def token_bytes(self, token_id):
        return self.tokens[token_id]

    def encode(self, text, *, add_special=True):
        return list(text.encode())


SIZE = len(Bytes.tokens)
VOCABULARY = Vocabulary(Bytes(), SIZE)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    "required": ["a"],
    "additionalProperties": False,
}


def grammar(kind, text):
    return VOCABULARY.compile(GrammarSource(kind, text))


def allowed(state, draft=()):
    return ids_of(state.allowed(draft), SIZE)


def ids_of(bits, size):
    return (
        list(range(size))
        if bits is None
        else np.flatnonzero(np.unpackbits(bits, count=size, bitorder="little")).tolist()
    )


def follow(kind, text, tokens):
    state = grammar(kind, text)
    for token_id in tokens:
        state.advance(token_id)
    return state


def test_allowed_tokens_are_those_that_can_go_on():
    assert allowed(grammar("regex", "(x|yé)z?")) == [ord("x"), ord("y")]
    assert allowed(follow("regex", "(x|y[éa])z?", b"y")) == [ord("a"), 195, SIZE - 2, SIZE - 1]
    assert allowed(follow("regex", "(x|yé)z?", b"x")) == [ord("z"), EOS, OTHER_EOS]


def test_where_there_is_no_choice_of_text_the_tokens_are_the_models_own():
    """Also of a tokenizer that puts a space before every text."""

    class Words(Bytes):
        def encode(self, text, *, add_special=True):
            return [SIZE - 4] if text == "true" else [*text.encode()]

    class Spaced(Bytes):
        def encode(self, text, *, add_special=True):
            return [*f" {text}".encode()]

    for texts, expected in [(Bytes(), ord("t")), (Words(), SIZE - 4), (Spaced(), SIZE - 4)]:
        assert allowed(Vocabulary(texts, SIZE).compile(GrammarSource("regex", "true"))) == [expected]
    after = Vocabulary(Spaced(), SIZE).compile(GrammarSource("regex", "utrue"))
    after.advance(ord("u"))
    assert allowed(after) == [SIZE - 4]


def test_every_end_of_sequence_token_is_as_good_as_another_and_no_control_token_is_text():
    anything = allowed(grammar("regex", "(?s:.*)"))
    assert [token_id for token_id in anything if 256 <= token_id <= UNUSED] == [EOS, OTHER_EOS]
    assert not {EOS, OTHER_EOS} & set(allowed(grammar("regex", "(?s:.+)")))


@pytest.mark.parametrize("text", ['{"a":true}', '{"a": false, "b": [1, -20]}', '{ "a" : true,"b":[] }'])
def test_looking_ahead_is_what_committing_gives_and_leaves_no_trace(text):
    """Known elsewhere as rollbacks that leave shifted states."""
    tokens = list(text.encode())
    source = grammar_source({"type": "json_schema", "json_schema": {"schema": SCHEMA}})
    committed = [allowed(follow(*source, tokens[:count])) for count in range(len(tokens) + 1)]
    for start in range(len(tokens) + 1):
        state = follow(*source, tokens[:start])
        for _ in range(2):
            for end in reversed(range(start, len(tokens) + 1)):
                assert allowed(state, tokens[start:end]) == committed[end]
            assert allowed(state, [*tokens[start:], ord("x")]) == list(range(SIZE)), "an illegal draft token"
            assert allowed(state, [ord("x"), *tokens[start:]]) == list(range(SIZE))
        assert allowed(state) == committed[start]


def test_drafts_may_run_past_the_end_but_the_matcher_is_not_asked():
    """openvino.genai#4081: a crash at the end because draft tokens ran past it."""
    state = follow("regex", "ab", b"a")
    assert allowed(state, [ord("b")]) == [EOS, OTHER_EOS]
    for draft in ([ord("b"), EOS], [ord("b"), OTHER_EOS, 97], [ord("b"), ord("b")], [EOS], [EOS, EOS, 97]):
        assert allowed(state, draft) == list(range(SIZE))
    state.advance(ord("b"))
    assert allowed(state) == [EOS, OTHER_EOS]
    assert allowed(state, [97]) == list(range(SIZE))
    for end in (EOS, OTHER_EOS):
        over = state.copy()
        over.advance(end)
        over._matcher = None
        assert allowed(over) == allowed(over, [97]) == list(range(SIZE))


def test_copies_go_their_own_ways():
    first = follow("regex", "ab|ac", b"a")
    second = first.copy()
    first.advance(ord("b"))
    assert allowed(second) == [ord("b"), ord("c")]
    assert allowed(first) == [EOS, OTHER_EOS]


@pytest.mark.parametrize("offset", range(5))
def test_a_grammar_that_begins_after_a_marker_within_a_draft(offset):
    """vllm#36138, #44297: skipped, or advanced twice, where reasoning ended inside a block."""
    text = 'start: thought </think> answer\nthought: /(.|\\n)*/\nanswer: "{" /[0-9]/ "}"'
    draft = [*b"hmm.,"[:offset], THINK_END, *b"{7}"]
    state = grammar("grammar", text)
    for _ in range(2):
        assert ord("x") in allowed(state, draft[:offset])
        assert allowed(state, draft[: offset + 1]) == [ord("{")]
        assert allowed(state, draft[: offset + 2]) == list(range(ord("0"), ord("9") + 1))
        assert allowed(state, draft) == [EOS, OTHER_EOS]
    replayed = follow("grammar", text, draft[: offset + 2])
    for token_id in draft[: offset + 2]:
        state.advance(token_id)
    assert allowed(state) == allowed(replayed)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("regex", "("),
        ("regex", "(?=x)a"),
        ("grammar", "start: nothing"),
        ("grammar", "start"),
        ("grammar", "start: <nope>"),
        ("json_schema", '{"type": "nonsense"}'),
        ("json_schema", '{"enum": []}'),
        ("json_schema", '{"$ref": "#"}'),
        ("json_schema", '{"$ref": "http://example.com/schema.json"}'),
        ("json_schema", '{"items": ' * 500 + "{}" + "}" * 500),
        ("json_schema", '{"const": "\\ud800"}'),
        ("grammar", "start: start"),
        ("grammar", "start: " + '("x" ' * 2000 + ")" * 2000),
        ("grammar", "start: %json {"),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 3}'),
        ("json_schema", '{"type": "string", "pattern": "("}'),
    ],
)
def test_what_does_not_compile_or_cannot_be_satisfied_is_refused(kind, text):
    with pytest.raises(UsageError, match="response_format cannot be honoured: "):
        grammar(kind, text)


def test_a_token_that_the_grammar_forbids_is_an_error_not_a_broken_state():
    with pytest.raises(UsageError, match="response_format cannot be honoured: ") as caught:
        follow("regex", "ab", b"ax")
    assert "<state>" not in str(caught.value)


class Fragile:
    """A matcher that a z is too much for, and that then stays in error."""

    def __init__(self, matcher):
        self._matcher, self._is_broken = matcher, False

    def __getattr__(self, name):
        return getattr(self._matcher, name)

    def deep_copy(self):
        return Fragile(self._matcher.deep_copy())

    def consume_tokens(self, tokens):
        self._is_broken |= ord("z") in tokens
        return self._matcher.consume_tokens(tokens)

    def is_error(self):
        return self._is_broken or self._matcher.is_error()

    def get_error(self):
        return "too complex" if self._is_broken else self._matcher.get_error()


def test_a_draft_that_is_too_much_for_the_matcher_leaves_what_was_committed_unharmed():
    make = grammar("regex", "[a-z]*")._make
    state = Grammar(lambda: Fragile(make()), np.array(sorted(Bytes.eos_ids)), SIZE)
    state.advance(ord("a"))
    before = allowed(state, [ord("b")])
    for _ in range(2):
        with pytest.raises(UsageError, match="response_format cannot be honoured: too complex"):
            state.allowed([ord("b"), ord("z")])
    assert allowed(state, [ord("b")]) == before
    assert allowed(state.copy()) == allowed(state)
    state.advance(ord("b"))
    assert allowed(state) == before


LEXEMES = 'start: (a b)*\na: "a" /[b-z]*q{3,70}x/\nb: /(.|\\n)*(foo|bar)[a-z]{1,30}/'


@pytest.mark.parametrize("num_draft_tokens", range(9))
def test_how_far_a_grammar_goes_does_not_depend_on_drafts_nor_on_other_answers(num_draft_tokens):
    """The real matcher, with little room: its copies share a lexer, and what is too complex for one ends all."""

    def make():
        source, limits = LLMatcher.grammar_from_lark(LEXEMES), LLParserLimits(step_lexer_fuel=200)
        return LLMatcher(VOCABULARY._tokenizer, source, limits=limits, log_level=0)

    def advance(state, token_id, draft):
        try:
            state.allowed(draft)
        except UsageError:
            assert draft
        state.allowed(())
        state.advance(token_id)

    text = b"abbbqqqqxfoo"
    first = Grammar(make, np.array([EOS]), SIZE)
    second = first.copy()
    for state in (first, second):
        for place, token_id in enumerate(text[:7]):
            advance(state, token_id, text[place : place + num_draft_tokens])
        with pytest.raises(UsageError, match="too many expressions"):
            state.allowed(())


def test_a_vocabulary_that_cannot_spell_a_text_spells_what_it_can():
    class Few(Bytes):
        tokens = (b"a", b"", b"ab", b"c")
        pieces = ("a", "</s>", "ab", "c")
        eos_ids = special_ids = (1,)

        def encode(self, text, *, add_special=True):
            return []

    for text, expected in [("abc", [2]), ("cab", [3]), ("a", [0])]:
        state = Vocabulary(Few(), 4).compile(GrammarSource("regex", text))
        assert ids_of(state.allowed(()), 4)[-1:] == expected
    spell = _Wrapped(Few(), Vocabulary(Few(), 4))
    assert [spell(text) for text in ("abca", "aé", "éa", "")] == [[2, 3, 0], [0], [], []]


def test_a_model_without_an_end_cannot_follow_a_grammar():
    class Endless(Bytes):
        eos_ids = (SIZE,)

    with pytest.raises(UsageError, match="needs a model with an end-of-sequence token"):
        Vocabulary(Endless(), SIZE).compile(GrammarSource("regex", "a"))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_allowed_adds_up_to_what_was_asked_for(seed):
    rng = np.random.default_rng(seed)
    for source, check in [
        (grammar_source({"type": "json_schema", "json_schema": {"schema": SCHEMA}}), json.loads),
        (GrammarSource("regex", "[a-c]{2,5}(é|z)"), re.compile("[a-c]{2,5}(é|z)").fullmatch),
    ]:
        state, said = VOCABULARY.compile(source), []
        while not said or said[-1] not in Bytes.eos_ids:
            said.append(int(rng.choice(allowed(state))))
            state.advance(said[-1])
        assert check(b"".join(map(VOCABULARY._texts.token_bytes, said)).decode()) is not None
