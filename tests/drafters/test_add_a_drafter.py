"""The page about adding a drafter says what works: its code runs, and passes its own test."""

import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
from toy_llm import toy_model

from outrider import LLM, SamplingParams
from outrider.drafters import registry
from outrider.drafters.base import DraftRequest

PAGE = Path(__file__).parent.parent.parent / "docs" / "add_a_drafter.md"


@pytest.fixture
def example(monkeypatch):
    """The names that the blocks of code on the page define."""
    blocks = re.findall(r"<!-- (\w+\.py) -->\n```python\n(.*?)```\n<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in blocks] == ["phrases.py", "test_phrases.py"]
    package, module = ModuleType("my_package"), ModuleType("my_package.phrases")
    monkeypatch.setitem(sys.modules, package.__name__, package)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, code in blocks:
        exec(compile(code, name, "exec"), vars(module))
    return vars(module)


def test_the_example_keeps_the_contract(example):
    example["test_the_contract"]()


def test_the_example_proposes_the_rest_of_a_phrase(example):
    drafter = example["PhraseDrafter"]()
    requests = [DraftRequest(0, context, 2, None, None) for context in ([9, 3, 1], [2, 7, 1], [3], [])]
    assert [draft.token_ids for draft in drafter.propose(requests)] == [(4, 1), (8,), (), ()]


def test_the_example_drafts_by_name_alone_and_in_company(example, monkeypatch):
    class Installed(EntryPoint):
        def load(self):
            return example["PhraseDrafter"]

    monkeypatch.setattr(registry, "entry_points", lambda group: [Installed("phrases", "x:y", group)])
    params = SamplingParams(max_tokens=30)
    (plain,) = LLM(toy_model()).generate("Hello", params)
    for draft, name in [("phrases", "phrases"), ("phrases,ngram", "phrases + ngram")]:
        (answer,) = LLM(toy_model(), draft).generate("Hello", params)
        assert answer.token_ids == plain.token_ids
        assert answer.speculation.drafter == name
