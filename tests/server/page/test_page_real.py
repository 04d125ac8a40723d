"""The playground on the API itself, around a toy model: what the scripted answers promise is what the API gives."""

from io import StringIO

import pytest
from browsing import answer, ask, race, refused, set_up
from serving import serving
from toy_llm import toy_model

from outrider import LLM
from outrider.server.app import make_app
from outrider.server.logs import Log
from outrider.server.service import Service
from outrider.server.settings import Settings

KEY = "a-key-for-tests"


@pytest.fixture
def service():
    llm = LLM(toy_model(max_length=4000), toy_model(1, name="draft", max_length=4000))
    return Service(llm, Settings(api_keys=(KEY,)), Log(StringIO()))


@pytest.fixture
def address(service):
    with serving(make_app(service)) as address:
        yield address


def test_the_page_and_the_api_agree(open_page, service):
    page = open_page()
    page.locator("#server", has_text="API key").wait_for()
    set_up(page, key=KEY, max_tokens="40")
    page.get_by_text("toy, speculation on: ").wait_for()
    ask(page, "hello")
    assert len(answer(page)) > 0
    page.locator(".answer .t").first.hover()
    assert page.locator("#tip li").count() == 5
    assert "Probability" in page.inner_text("#tip")
    ask(page, "and?")
    page.click("nav a[href='#race']")
    assert race(page, "hello").endswith("speculative. The answers are identical, token for token.")
    page.click("nav a[href='#chat']")
    set_up(page, max_tokens="5000")
    assert refused(page, "hello") == "max_tokens is 5000; the context holds 4000 tokens"
