"""Draft options as they are typed."""

import pytest

from outrider import LLM, DraftOptions
from outrider.cli.draft_options import parse_draft_options
from outrider.errors import UsageError


def test_settings_become_options(tmp_path):
    text = tmp_path / "t.txt"
    text.write_text("a=b, c")
    assert parse_draft_options([]) is None
    assert parse_draft_options(["vocab=all"]) == DraftOptions(vocab=None)
    settings = ["weights=int8", "vocab=12", f"text={text}"]
    assert parse_draft_options(settings) == DraftOptions(weights="int8", vocab=12, text="a=b, c")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["weight=int4"], "did you mean weights"),
        (["vocab"], "write KEY=VALUE"),
        ([""], "write KEY=VALUE"),
        (["=3"], "write KEY=VALUE"),
        (["vocab=3", "vocab=4"], "vocab twice"),
        (["vocab="], "vocab is ''"),
        (["vocab=0"], "vocab is 0"),
        (["vocab=-5"], "vocab is '-5'"),
        (["vocab=1e9"], "vocab is '1e9'"),
        (["vocab=" + "9" * 5000], "vocab is '999"),
        (["weights=int3"], "weights is 'int3'"),
        (["text=/nowhere"], "/nowhere cannot be read"),
        (["text="], "the name of a file is empty"),
    ],
)
def test_settings_that_cannot_be(settings, named):
    with pytest.raises(UsageError, match=named):
        parse_draft_options(settings)


def test_options_without_a_draft_to_load(models):
    for draft in (None, "ngram"):
        with pytest.raises(UsageError, match="draft_options is given"):
            LLM(models["target"], draft, draft_options=DraftOptions())


def test_a_reply_names_the_draft_as_it_is_held(models):
    prompt = "abc"
    paths = models["target"], models["draft"]
    whole, cut = (LLM(*paths, draft_options=options) for options in (DraftOptions("file"), DraftOptions(vocab=20)))
    plain = LLM(models["target"]).generate(prompt)[0]
    for llm, name in ((whole, ""), (cut, " (int4 weights, ")):
        output = llm.generate(prompt)[0]
        assert output.token_ids == plain.token_ids
        assert name in output.speculation.drafter
        assert output.speculation.drafter in output.speculation.reason
    assert "(" not in whole.generate(prompt)[0].speculation.drafter
