"""The playground for every eye and hand: contrast, small screens, less motion, and axe-core's rules."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PHONE, WIDE, ask, race, refused

SCHEMES = ("light", "dark")


def faults(page):
    """What axe-core finds, the rules of WCAG 2.2 AA and its own best practices included."""
    found = Axe().run(page).response["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", PHONE)], ids=["light", "dark"])
def test_axe_finds_nothing(open_page, scheme, viewport):
    page = open_page(color_scheme=scheme, viewport=viewport, reduced_motion="reduce")
    ask(page, "hello")
    page.locator(".answer .recovered").first.focus()
    assert page.is_visible("#tip")
    assert faults(page) == []
    refused(page, "busy")
    page.click("#open-settings")
    assert faults(page) == []
    page.keyboard.press("Escape")
    page.click("nav a[href='#race']")
    race(page, "hello")
    assert faults(page) == []


def luminance(rgb):
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]  # WCAG 2.2, relative luminance


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_colours_keep_their_distance(open_page, scheme):
    page = open_page(color_scheme=scheme)

    def colour(name):
        """Return what the browser paints for a colour of the style sheet."""
        return page.evaluate(
            """(name) => {
              const context = document.createElement("canvas").getContext("2d");
              const probe = document.body.appendChild(document.createElement("i"));
              probe.style.color = `var(--${name})`;
              context.fillStyle = getComputedStyle(probe).color;
              context.fillRect(0, 0, 1, 1);
              probe.remove();
              return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)].map((value) => value / 255);
            }""",
            name,
        )

    for ground in ("ground", "surface"):
        for text in ("ink", "soft", "bad"):
            assert contrast(colour(text), colour(ground)) >= 4.5, (text, ground)
        for mark in ("accepted", "recovered", "bonus", "accent", "edge"):
            assert contrast(colour(mark), colour(ground)) >= 3, (mark, ground)
    assert contrast(colour("on-accent"), colour("accent")) >= 4.5


def test_origins_are_told_apart_without_colour(open_page):
    page = open_page()
    ask(page, "hello")
    lines = [
        page.locator(f".answer .{origin}").first.evaluate(
            "(span) => ['line', 'style'].map((part) => getComputedStyle(span)[`text-decoration-${part}`]).join(' ')"
        )
        for origin in ("accepted", "recovered", "bonus", "plain")
    ]
    assert lines == ["underline solid", "underline wavy", "underline dotted", "none solid"]


def test_nothing_is_wider_than_a_small_phone(open_page):
    page = open_page(viewport=PHONE)

    def fits():
        return page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]

    assert fits()
    ask(page, "n" * 300)
    ask(page, "wide")
    page.locator(".answer .t").first.hover()
    assert fits()
    refused(page, "busy")
    assert fits()
    page.click("#open-settings")
    assert fits()
    assert page.evaluate("document.getElementById('settings').scrollWidth <= innerWidth")
    page.keyboard.press("Escape")
    page.click("nav a[href='#race']")
    race(page, "wide")
    assert fits()


@pytest.mark.parametrize(("motion", "moving"), [("reduce", 0), ("no-preference", 1)])
def test_nothing_moves_for_those_who_ask_for_that(open_page, motion, moving):
    page = open_page(reduced_motion=motion)
    page.fill("#chat-prompt", "slow")
    page.keyboard.press("Enter")
    page.locator(".answer .t").first.wait_for()
    assert page.evaluate("document.getAnimations().length") == moving


def test_the_page_is_of_this_server_alone(open_page, address):
    page = open_page()
    response = page.request.get(address)
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.broken = 1";
      document.body.append(script);
    }""")
    assert page.evaluate("window.broken") is None
