"""A real browser, Debian's Chromium, and a server with scripted answers."""

import shutil

import pytest
from browsing import WIDE
from fake_api import FakeApi, ScriptedServer
from playwright.sync_api import sync_playwright
from serving import serving


@pytest.fixture(scope="module")
def browser():
    executable = shutil.which("chromium")
    assert executable, "the page is tested in Chromium: apt-get install chromium (`make chromium`)"
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=executable)


@pytest.fixture(scope="module")
def scripted():
    scripted = ScriptedServer()
    with serving(scripted.app) as address:
        scripted.address = f"{address}models/"
        yield scripted


@pytest.fixture
def api(scripted):
    scripted.api = FakeApi()
    return scripted.api


@pytest.fixture
def address(scripted, api):
    return scripted.address


@pytest.fixture
def open_page(browser, address):
    """Opens the page in a context of its own. Anything thrown in the page or loaded from elsewhere fails the test."""
    faults, contexts = [], []

    def open_page(view="", *, viewport=WIDE, **settings):
        contexts.append(browser.new_context(viewport=viewport, **settings))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)  # what does not come in that time does not come
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: request.url.startswith(address) or faults.append(request.url))
        page.goto(address + view)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
