"""The page: whole, by itself, harmless, and with every plot that there is something to plot for."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from plans import made_up, outcome

from outrider.planner import report
from outrider.planner.document import Figure


def html_report(plan):
    return report.html_report(plan, command="outrider plan --target 'a b'", version="1.2.3")


class Tags(HTMLParser):
    """Knows which tags there are, and that all are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in {"meta", "link", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def read(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def test_a_page_holds_everything_and_fetches_nothing():
    page = html_report(made_up())
    tags = read(page)
    assert tags.seen.count("svg") == 4
    assert not {"script", "link", "img", "iframe"} & set(tags.seen)
    assert not re.search(r"https?:|@import|url\((?!#)", page)
    assert "draft, 4" in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("var(--ink)") > 50
    assert "#010101" not in page
    assert "<th>run</th>" in page
    assert "<code>outrider plan --target &#39;a b&#39;</code>" in page
    assert "Outrider 1.2.3, 2026" in page
    assert "Times of one pass differ by 10%" in page


def test_names_are_text_whatever_they_hold():
    evil = "<script>alert(1)</script> $x^2$ & \\frac"
    plan = made_up()
    choices = (plan.choices[0], outcome(evil, 20.0, drafts=(evil,), length=4), plan.choices[2])
    page = html_report(replace(plan, choices=choices, target=replace(plan.target, name=evil), by_family={}))
    assert "script" not in read(page).seen


@pytest.mark.parametrize("count", [0, 1])
def test_what_was_not_measured_is_not_plotted(count):
    plain = replace(made_up().choices[0], measured_tokens_per_s=None, measured_families=None)
    plan = made_up(choices=(plain, *made_up().choices[1:])[: 1 + count], recommended=count, by_family={})
    page = html_report(plan)
    assert read(page).seen.count("svg") == (1 if count == 0 else 3)
    assert ("Do not speculate" in page) == (count == 0)
    assert "<th>run</th>" not in page


def test_a_noisy_machine_and_a_single_prompt_are_said():
    plan = made_up()
    page = html_report(replace(plan, is_noisy=True, prompts=replace(plan.prompts, measured=1)))
    assert "This machine was noisy" in page
    assert "From so few prompts there are no intervals, which take 6" in page


@pytest.mark.parametrize(
    ("low", "families", "doubts"),
    [
        (1.01, {"code": 1}, ()),
        (None, {}, ()),
        (
            1.0,
            {"code": 0, "chat": 0},
            ("Plain decoding is the best choice for code, chat.",),
        ),
    ],
)
def test_what_speaks_against_the_recommended_draft_is_said(low, families, doubts):
    plan = made_up(by_family=families)
    best = replace(plan.best, speed=replace(plan.best.speed, speedup=Figure(1.1, low, 1.2)))
    plan = replace(plan, choices=(plan.choices[0], best))
    assert plan.doubts == doubts
    assert all(said in html_report(plan) for said in doubts)


@pytest.mark.parametrize("value", [1.1, 1.0])
def test_a_draft_that_is_about_equal_is_named(value):
    plan = made_up(recommended=0)
    ahead = replace(plan.choices[1], speed=replace(plan.best.speed, speedup=Figure(value, 0.9, 1.3)))
    plan = replace(plan, choices=(plan.choices[0], ahead))
    said = "draft, 4 comes out ahead of it, but not clearly: about equal; more prompts may tell."
    assert plan.doubts == ((said,) if value > 1 else ())
    assert (said in html_report(plan)) == (value > 1)
