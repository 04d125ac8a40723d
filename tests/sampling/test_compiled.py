"""Settings meet a vocabulary: what does not fit is refused by name."""

import pytest
from processed import Letters

from outrider.errors import UsageError
from outrider.sampling import SamplingParams, Vocabulary, compile_params


def compiled(**settings):
    return compile_params(SamplingParams(**settings), Vocabulary(Alphabet(), 26))


class Alphabet(Letters):
    eos_ids = (25, 300, 24)  # the last one beyond what the model can say


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("logit_bias", {"logit_bias": {3: 1.0, 26: 1.0}}),
        ("allowed_token_ids", {"allowed_token_ids": (3, 26)}),
        ("stop_token_ids", {"stop_token_ids": (26,)}),
    ],
)
def test_ids_outside_the_vocabulary_are_refused_by_name(field, settings):
    with pytest.raises(UsageError, match=f"{field} has token id 26; the model's vocabulary has ids 0 to 25"):
        compiled(**settings)


def test_settings_that_leave_nothing_to_say_are_refused():
    with pytest.raises(UsageError, match="leave ends the answer, and min_tokens is 1"):
        compiled(allowed_token_ids=(25, 3), stop_token_ids=(3,), min_tokens=1)
    assert compiled(allowed_token_ids=(25, 3), stop_token_ids=(3,)).allowed.tolist() == [8, 0, 0, 2]


def test_bad_words_may_not_leave_nothing_either():
    every = [chr(97 + i) for i in range(26)]
    with pytest.raises(UsageError, match="bad_words excludes every token"):
        compiled(allowed_token_ids=(0, 1), bad_words=("a", "b", "ab"))
    with pytest.raises(UsageError, match="bad_words excludes every token"):
        compiled(bad_words=every)
    with pytest.raises(UsageError, match="leave ends the answer, and min_tokens is 2"):
        compiled(bad_words=every[:24], min_tokens=2)
    with pytest.raises(UsageError, match="leave ends the answer"):
        compiled(allowed_token_ids=(0, 25), bad_words=("a",), min_tokens=1)
    for fine in ({"bad_words": every[:24]}, {"allowed_token_ids": (0, 1), "bad_words": ("a", "bb", "ba")}):
        assert compiled(**fine).bad_words


def test_ends_are_the_models_and_the_callers():
    assert compiled(stop_token_ids=(3, 25)).end_ids.tolist() == [3, 24, 25]


def test_bad_words_are_spelled_with_and_without_a_space_once_each():
    assert compiled(bad_words=("ab", " ab", "c")).bad_words == ((0, 1), (2,))

    class Spaces(Letters):
        def encode(self, text, *, add_special=True):
            assert not add_special
            return [ord(character) - 97 if character != " " else 9 for character in text]

    params = SamplingParams(bad_words=("ab",))
    assert compile_params(params, Vocabulary(Spaces(), 26)).bad_words == ((0, 1), (9, 0, 1))


def test_a_bad_word_without_tokens_is_refused():
    with pytest.raises(UsageError, match="bad_words has ' ', of which the tokenizer makes no token"):
        compiled(bad_words=("a", " "))
