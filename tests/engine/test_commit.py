"""Where an answer ends: at every offset in a round, for every reason, as in plain decoding."""

import pytest
from engine_fakes import (
    Pieces,
    PlannedDrafter,
    ScriptLM,
    answer,
    greedy,
    letters,
    make_stepper,
    pattern_drafter,
    plain,
    result_of,
)

from outrider.backends.toy import HashLM
from outrider.engine.outputs import Origin
from outrider.sampling.params import SamplingParams

# Says 1 to 20 in order after any prompt of one token.
COUNTING = ScriptLM(tuple(range(1, 21)), vocab_size=32)
PATTERNS = {
    "all right": [(True,) * 5],
    "never right": [(False,)],
    "two right": [(True, True, False)],
    "mixed": [(True, False), (), (True, True, True), (False, True), (True,)],
}


def check(model, prompt, params, *, pieces=None, **limits):
    """Compare every pattern of drafts with plain decoding; return the last one's sequence."""
    pieces = pieces or letters(model.vocab_size)
    wanted = plain(model, prompt, params, pieces, **limits)
    for name, patterns in PATTERNS.items():
        drafter = pattern_drafter(model, patterns)
        (sequence,) = answer(make_stepper(model, pieces=pieces, drafter=drafter, k=5, **limits), [prompt], params)
        assert result_of(sequence) == wanted, name
        accounts_agree(sequence)
    return wanted


def accounts_agree(sequence):
    origins = [token.origin for token in sequence.emitted]
    assert origins.count(Origin.ACCEPTED) == sequence.counters.num_accepted_tokens
    assert origins.count(Origin.RECOVERED) == sequence.counters.num_rejections
    assert sum(sequence.counters.num_accepted_tokens_per_pos) == sequence.counters.num_accepted_tokens
    assert sequence.counters.num_accepted_tokens <= sequence.counters.num_draft_tokens


@pytest.mark.parametrize("offset", range(1, 21))
def test_end_of_sequence_ends_the_answer_wherever_it_stands(offset):
    ids, _, reason = check(COUNTING, (0,), SamplingParams(max_tokens=30), eos_ids={offset, 30})
    assert ids == list(range(1, offset + 1))
    assert reason == "stop"


def test_no_bonus_token_follows_an_accepted_end_of_sequence():
    drafter = pattern_drafter(COUNTING, [(True,) * 5])
    stepper = make_stepper(COUNTING, drafter=drafter, k=5, eos_ids={4})
    (sequence,) = answer(stepper, [(0,)], SamplingParams())
    assert [token.origin for token in sequence.emitted] == [Origin.PLAIN, *[Origin.ACCEPTED] * 3]
    assert sequence.counters.num_draft_tokens == sequence.counters.num_accepted_tokens == 3
    assert sequence.counters.num_rejections == 0
    assert drafter.released == [0]


def test_end_of_sequence_adds_no_text_and_is_ignored_on_request():
    _, text, _ = check(COUNTING, (0,), SamplingParams(max_tokens=30), eos_ids={4})
    assert text == "bcd"
    ids, text, reason = check(COUNTING, (0,), SamplingParams(max_tokens=6, ignore_eos=True), eos_ids={4})
    assert (ids, text, reason) == ([1, 2, 3, 4, 5, 6], "bcdefg", "length")


@pytest.mark.parametrize("max_tokens", range(1, 20))
def test_max_tokens_is_exact(max_tokens):
    ids, _, reason = check(COUNTING, (0,), SamplingParams(max_tokens=max_tokens))
    assert (len(ids), reason) == (max_tokens, "length")


@pytest.mark.parametrize("max_length", range(5, 20))
def test_the_end_of_the_context_ends_the_answer(max_length):
    ids, _, reason = check(HashLM(11), (1, 2, 3, 4), SamplingParams(max_tokens=50), max_length=max_length)
    assert (len(ids), reason) == (max_length - 4, "length")


def test_end_of_sequence_beats_the_limit_it_coincides_with():
    assert check(COUNTING, (0,), SamplingParams(max_tokens=4), eos_ids={4})[2] == "stop"
    assert check(COUNTING, (0,), SamplingParams(max_tokens=4, stop=("e",)))[1:] == ("bcd", "stop")


@pytest.mark.parametrize("start", range(1, 16))
@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_stop_string_ends_the_text_wherever_it_stands(start, length):
    alphabet = "".join(chr(97 + index) for index in range(26))
    stop = alphabet[start : start + length]
    ids, text, reason = check(COUNTING, (0,), SamplingParams(max_tokens=30, stop=("zz", stop)))
    assert ids == list(range(1, start + length))
    assert text == alphabet[1:start]
    assert reason == "stop"


def test_stop_strings_that_begin_and_end_inside_tokens():
    pieces = Pieces([b"", b"On", b"ce up", b"on a", b" time.", b"\nUs", b"er:", b" hi"])
    model = ScriptLM((1, 2, 3, 4, 5, 6, 7), vocab_size=8)
    for stop, text in [("\nUser:", "Once upon a time."), ("e u", "Onc"), (" a ", "Once upon"), ("n a t", "Once upo")]:
        assert check(model, (0,), SamplingParams(max_tokens=7, stop=(stop,)), pieces=pieces)[1:] == (text, "stop")
    params = SamplingParams(max_tokens=7, stop=("User:x", " hi!"))
    assert check(model, (0,), params, pieces=pieces)[1:] == ("Once upon a time.\nUser: hi", "length")


def test_the_first_stop_string_in_the_text_wins():
    pieces = Pieces([b"", b"ab", b"cdef", b"g"])
    params = SamplingParams(max_tokens=3, stop=("f", "de", "bcdefg"))
    assert check(ScriptLM((1, 2, 3), 4), (0,), params, pieces=pieces) == ([1, 2], "abc", "stop")


@pytest.mark.parametrize("text", ["\U0001f642\U0001f642é", "né\U0001f469‍\U0001f469‍\U0001f467 日本", "a\u0301ß"])
@pytest.mark.parametrize("cut", [1, 2, 3, 5, 100])
def test_characters_split_over_tokens_arrive_whole(text, cut):
    data = text.encode()
    pieces = [b"", *(data[start : start + cut] for start in range(0, len(data), cut))]
    model = ScriptLM(tuple(range(1, len(pieces))), vocab_size=max(len(pieces), 2))
    params = SamplingParams(max_tokens=len(pieces) - 1)
    assert check(model, (0,), params, pieces=Pieces([*pieces, b""]))[1] == text
    for patterns in PATTERNS.values():
        drafter = pattern_drafter(model, patterns)
        stepper = make_stepper(model, pieces=Pieces([*pieces, b""]), drafter=drafter, k=5)
        (sequence,) = answer(stepper, [(0,)], params)
        assert all("\ufffd" not in token.text for token in sequence.emitted)


@pytest.mark.parametrize("stop", ["abc", "c", "bcd"])
def test_what_is_shown_is_never_taken_back(stop):
    model = HashLM(4, seed=2)
    for prompt in [(a, b) for a in range(4) for b in range(4)]:
        check(model, prompt, SamplingParams(max_tokens=40, stop=(stop,)))


def test_a_stop_string_held_back_but_never_completed_is_not_lost():
    assert check(COUNTING, (0,), SamplingParams(max_tokens=5, stop=("efz",)))[1] == "bcdef"
    assert check(COUNTING, (0,), SamplingParams(max_tokens=9, stop=("efz",)), eos_ids={6})[1] == "bcdef"


@pytest.mark.parametrize("stop", ["\ufffd", "b\ufffd", "ab\ufffd", "\ufffd\ufffd"])
@pytest.mark.parametrize("end", ["max_tokens", "context", "end of sequence"])
@pytest.mark.parametrize("min_tokens", [0, 1, 2, 3])
def test_a_stop_string_that_the_end_of_the_answer_completes(stop, end, min_tokens):
    """Half a character at the end of an answer becomes U+FFFD, which may be what a stop string waits for."""
    pieces, model = Pieces([b"", b"a", b"b", b"\xc3", b""]), ScriptLM((1, 2, 3, 4, 4), vocab_size=5)
    max_tokens = {"max_tokens": 3}.get(end, 5)
    limits = {"context": {"max_length": 4}, "end of sequence": {"eos_ids": {4}}}.get(end, {})
    # The end of sequence is a fourth token, and may end the text wherever it may be said.
    is_stop = stop != "\ufffd\ufffd" and (min_tokens < 3 or end == "end of sequence")
    wanted = "ab\ufffd".removesuffix(stop) if is_stop else "ab\ufffd"
    reason = "stop" if is_stop or end == "end of sequence" else "length"
    params = SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens, stop=(stop,))
    for patterns in PATTERNS.values():
        drafter = pattern_drafter(model, patterns)
        (one,) = answer(make_stepper(model, pieces=pieces, drafter=drafter, k=5, **limits), [(0,)], params)
        ids, text, why = result_of(one)
        assert (ids[:3], text, why) == ([1, 2, 3], wanted, reason)


def test_draft_tokens_beyond_the_end_count_neither_for_nor_against_the_draft():
    drafter = PlannedDrafter(lambda context: [*greedy(COUNTING, context, 2), 31, 31])
    stepper = make_stepper(COUNTING, drafter=drafter, k=4, eos_ids={3})
    (sequence,) = answer(stepper, [(0,)], SamplingParams())
    counters = sequence.counters
    assert (counters.num_draft_tokens, counters.num_accepted_tokens, counters.num_rejections) == (2, 2, 0)
    assert counters.num_accepted_tokens_per_pos == [1, 1]
