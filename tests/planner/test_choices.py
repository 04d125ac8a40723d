"""What there is to choose from, by what drafts and how text is made."""

import pytest

from outrider.planner.choices import PLAIN, Choice, Contestant, choices
from outrider.planner.compose import _best
from outrider.planner.document import Figure
from outrider.sampling import SamplingParams

MODEL, OTHER, LOOKUP = (
    Contestant("m", is_model=True),
    Contestant("o", is_model=True, is_other_vocabulary=True),
    Contestant("ngram"),
)


@pytest.mark.parametrize(
    ("params", "rule", "rules", "has_tree"),
    [
        ({}, "auto", {"auto"}, True),
        ({"temperature": 1.0, "seed": 3}, "auto", {"auto", "token", "block"}, True),
        ({"temperature": 1.0}, "auto", {"auto", "token", "coupled"}, False),
        ({"temperature": 1.0}, "coupled", {"coupled"}, True),
    ],
)
def test_trees_and_rules_take_part_where_they_make_sense(params, rule, rules, has_tree):
    found = choices([MODEL, OTHER, LOOKUP], SamplingParams(**params), rule)
    assert found[0] == PLAIN
    assert len(set(found)) == len(found)
    assert {one.rule for one in found[1:]} == rules
    assert any(one.draft_tree for one in found) == has_tree
    assert not any(one.draft_tree for one in found if "o" in one.drafts)
    assert {one.drafts for one in found} == {(), ("m",), ("o",), ("m", "ngram"), ("o", "ngram"), ("ngram",)}


def test_names_are_short_and_tell_choices_apart():
    assert Choice().name == "plain"
    assert Choice(("a/b/model.gguf", "ngram"), 4, 8, "block").name == "model + ngram, 4, tree of 8, block"
    found = choices([MODEL, OTHER, LOOKUP], SamplingParams(temperature=1.0), "auto")
    assert len({one.name for one in found}) == len(found)


@pytest.mark.parametrize(
    ("speedups", "eligible", "best"),
    [
        ([1.0, 1.5, 1.2], [True] * 3, 1),
        ([1.0, 1.01, 0.5], [True] * 3, 0),
        ([1.0, 0.9], [True] * 2, 0),
        ([1.0, 1.5, 1.2], [True, False, True], 2),
    ],
)
def test_a_draft_has_to_be_clearly_faster_to_be_recommended(speedups, eligible, best):
    assert _best([Figure(one) for one in speedups], eligible) == best


@pytest.mark.parametrize(
    ("lows", "best"), [((1.3, 1.1), 1), ((0.99, 1.1), 2), ((1.0, 0.8), 0), ((None, 1.1), 1), ((None, None), 1)]
)
def test_its_interval_has_to_lie_above_plain_decoding(lows, best):
    rivals = [Figure(value, low, value + 0.3) for value, low in zip((1.5, 1.2), lows, strict=True)]
    assert _best([Figure(1.0, 1.0, 1.0), *rivals], [True] * 3) == best
