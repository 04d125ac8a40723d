"""The playground in a browser: what it asks the server for, and what it makes of the answers."""

import pytest
from browsing import answer, ask, race, refused, set_up
from fake_api import HOSTILE, INFO, SCRIPTS


def test_an_answer_comes_in_tokens_that_show_how_they_came_about(open_page, api):
    page = open_page()
    ask(page, "hello")
    assert answer(page) == SCRIPTS["hello"]
    origins = ("accepted", "recovered", "bonus", "plain")
    assert [page.locator(f".answer .{origin}").count() for origin in origins] == [12, 2, 1, 1]
    assert page.inner_text("#chat-stats .legend").split() == [
        "drafted",
        "12",
        "recovered",
        "2",
        "bonus",
        "1",
        "plain",
        "1",
    ]
    assert "16 tokens in" in page.inner_text(".answer .note")
    _, first, rate, length = page.locator("#chat-stats dd").all_inner_texts()
    assert first.endswith(" ms")
    assert (rate, length) == ("75%", "4.00")
    (request,) = api.requests
    assert request["stream"] is request["return_token_details"] is True
    assert (request["model"], request["messages"]) == (INFO["target"], [{"role": "user", "content": "hello"}])


def test_speed_leaves_the_first_chunk_out(open_page):
    speed = """async (times) => {
      const { Run } = await import("./page/api.js");
      const run = Object.assign(new Run(), { tokens: times.map((at) => ({ at })), inFirstChunk: 2 });
      return run.speed;
    }"""
    page = open_page()
    assert page.evaluate(speed, [100, 100, 200, 300]) == 10
    assert page.evaluate(speed, [100, 100, 110]) is None  # too short to tell
    assert page.evaluate(speed, []) is None


def test_the_server_says_what_is_loaded(open_page):
    page = open_page()
    page.get_by_text(INFO["target"]).wait_for()
    assert page.inner_text("#server") == (
        "smollm2-135m, speculation on: ngram proposes up to 64 tokens a round. Up to 0.88 GB, 2 threads, version 0.1.0."
    )


def test_what_a_model_says_is_text_and_never_markup(open_page):
    page = open_page()
    ask(page, "hostile")
    assert answer(page) == HOSTILE
    page.locator(".answer .t").first.hover()
    page.locator("#tip").wait_for()
    assert page.evaluate("window.broken") is None
    assert page.locator("main img, main script, #tip img, #tip script").count() == 0


def test_what_is_between_fences_is_code(open_page):
    page = open_page()
    ask(page, "code")
    code = "".join(page.locator(".answer .code").all_text_contents())
    assert code == "\ndef add(one, other):\n    return one + other\n```"


def test_a_token_tells_more_when_pointed_at(open_page):
    page = open_page()
    ask(page, "hello")
    page.locator(".answer .accepted").first.hover()
    words = page.inner_text("#tip")
    assert "␣there, · drafted by ngram" in words
    assert "Probability 95.1%" in words
    assert page.locator("#tip li").all_inner_texts()[1:3] == ["␣another\n5.0%", "⏎\n1.1%"]
    page.locator("#tip").hover()  # it stays while pointed at
    page.wait_for_timeout(300)
    assert page.is_visible("#tip")
    page.keyboard.press("Escape")
    assert page.is_hidden("#tip")


def test_the_keyboard_alone_will_do(open_page, api):
    page = open_page()
    page.keyboard.type("hello")  # the box has the focus
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("you")
    page.keyboard.press("Enter")
    page.locator(".answer .note:not(:empty)").wait_for()
    assert api.requests[0]["messages"][0]["content"] == "hello\nyou"
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == (
        "Answer 1. Arrow keys walk through its tokens."
    )
    for key, seen in (("ArrowRight", "Hello"), ("ArrowRight", "␣there"), ("End", "␣morning"), ("Home", "Hello")):
        page.keyboard.press(key)
        assert seen in page.inner_text("#tip")
        assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "tip"
    page.locator("#open-settings").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.getElementById('settings').contains(document.activeElement)")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "open-settings"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.locator("#race-prompt:focus").wait_for()


def test_a_screen_reader_hears_of_an_answer_twice_not_at_every_token(open_page):
    page = open_page()
    page.evaluate("""() => {
      window.heard = [];
      new MutationObserver(() => heard.push(document.getElementById("status").textContent))
        .observe(document.getElementById("status"), { childList: true });
    }""")
    ask(page, "hello")
    first, last = page.evaluate("heard")
    assert first == "Answering."
    assert last.startswith(SCRIPTS["hello"])
    live = "[aria-live], [role=status], [role=alert], [role=log]"
    assert page.locator(f":is({live}) .tokens, .tokens:is({live})").count() == 0


def test_the_conversation_goes_on_and_can_be_copied_and_cleared(open_page, api):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    ask(page, "hello")
    ask(page, "again")
    said = [("user", "hello"), ("assistant", SCRIPTS["hello"]), ("user", "again")]
    assert [(one["role"], one["content"]) for one in api.requests[1]["messages"]] == said
    page.click("#copy")
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()").split("\n\n")
    assert copied == ["You: hello", f"Model: {SCRIPTS['hello']}", "You: again", f"Model: {SCRIPTS['hello']}"]
    page.click("#clear")
    assert page.locator("#messages > *").count() == 0
    ask(page, "hello")
    assert len(api.requests[2]["messages"]) == 1


def test_settings_become_fields_of_the_request(open_page, api):
    page = open_page()
    set_up(
        page,
        system="Be brief.",
        temperature="0.7",
        top_p="0.9",
        max_tokens="3",
        seed="7",
        num_speculative_tokens="4",
        rule="coupled",
        alternatives=False,
    )
    ask(page, "hello")
    request = api.requests[0]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert {name: request[name] for name in ("temperature", "top_p", "max_tokens", "seed")} == {
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 3,
        "seed": 7,
    }
    assert request["speculation"] == {"enabled": True, "num_speculative_tokens": 4, "rule": "coupled"}
    assert request["logprobs"] is False
    set_up(page, system="", temperature="", top_p="", max_tokens="5", seed="", num_speculative_tokens="", enabled=False)
    set_up(page, rule="", alternatives=True)
    ask(page, "hello")
    request = api.requests[1]
    assert not {"temperature", "top_p", "seed"} & set(request)
    assert request["speculation"] == {"enabled": False}
    assert "logprobs" not in request  # token details have them unless they are turned off
    assert "The request turned it off." in page.inner_text("#chat-stats")


def test_figures_are_live(open_page, api):
    page = open_page()
    page.fill("#chat-prompt", "slow")
    page.keyboard.press("Enter")
    page.locator(".answer .bonus").first.wait_for()
    _, _, rate, length = page.locator("#chat-stats dd").all_inner_texts()
    assert (rate, length) == ("75%", "4.00")
    page.keyboard.press("Escape")
    page.locator(".answer .note", has_text="Stopped after").wait_for()
    assert page.locator("#chat-stats dd").all_inner_texts()[2:] == ["75%", "4.00"]


@pytest.mark.parametrize("stop", ["Escape", "button"])
def test_an_answer_can_be_stopped(open_page, api, stop):
    page = open_page()
    page.fill("#chat-prompt", "slow")
    page.keyboard.press("Enter")
    page.locator(".answer .accepted").first.wait_for()
    if stop == "button":
        page.get_by_role("button", name="Stop").click()
    else:
        page.keyboard.press("Escape")
    page.locator(".answer .note", has_text="Stopped after").wait_for()
    assert SCRIPTS["slow"].startswith(answer(page))
    page.get_by_role("button", name="Send").wait_for()
    while not api.cancelled:  # the server sees the client gone
        page.wait_for_timeout(20)


def test_errors_come_in_words_and_the_question_is_kept(open_page, api):
    page = open_page()
    assert refused(page, "busy") == "The server is busy; try again in 7 s: 8 requests are waiting, which is the limit."
    assert page.input_value("#chat-prompt") == "busy"
    assert refused(page, "odd") == "temperature is 9.0; it must be from 0 to 2"
    assert page.locator("#messages > *").count() == 0
    ask(page, "hello")
    assert page.is_hidden("#chat-error")
    assert refused(page, "breaks") == "The connection broke off. What had come until then stands."
    assert answer(page) == SCRIPTS["breaks"]
    assert "Broken off after" in page.locator(".answer .note").last.inner_text()
    assert refused(page, "fails") == "The logits of the target are not numbers."
    assert refused(page, "ends") == "The server is stopping."
    page.route("**/v1/**", lambda route: route.abort())
    assert refused(page, "hello") == "The server cannot be reached. Is it still running?"


def test_a_key_is_asked_for_sent_and_kept_in_memory_only(open_page, api):
    api.key = "secret-key"
    page = open_page()
    assert refused(page, "hello") == "The server wants an API key."
    assert page.evaluate("document.activeElement.name") == "key"
    page.keyboard.type("another")
    page.keyboard.press("Enter")
    assert refused(page, "hello") == "The server does not know this API key."
    page.fill("[name=key]", "")
    page.keyboard.type("secret-key")
    page.keyboard.press("Enter")
    ask(page, "hello")
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    assert "secret" not in page.url
    page.reload()
    assert page.input_value("[name=key]") == ""


def test_a_race_runs_one_after_the_other_and_compares_word_for_word(open_page, api):
    page = open_page("#race")
    words = race(page, "hello")
    assert words.startswith("Speculative was ")
    assert " for 16 tokens plain, " in words
    assert words.endswith("The answers are identical, token for token.")
    warm_up, plain, speculative = api.requests
    assert warm_up["max_tokens"] == 1
    assert {**speculative, "speculation": plain["speculation"]} == plain
    assert (plain["speculation"], speculative["speculation"]) == ({"enabled": False}, {"enabled": True})
    assert plain["logprobs"] is False  # they take time
    assert page.locator(".lane .tokens").all_text_contents() == [SCRIPTS["hello"]] * 2
    assert page.locator("#lane-speculative .tokens .accepted").count() == 12
    clocks = page.locator(".clock").all_inner_texts()
    page.click("#replay")
    assert "".join(page.locator(".lane .tokens").all_text_contents()) != SCRIPTS["hello"] * 2
    page.locator(".lane .tokens .t").nth(31).wait_for()
    assert page.locator(".lane .tokens").all_text_contents() == [SCRIPTS["hello"]] * 2
    assert page.locator(".clock").all_inner_texts() == clocks
    assert len(api.requests) == 3


def test_a_race_says_why_answers_differ(open_page, api):
    page = open_page("#race")
    set_up(page, temperature="1")
    assert "The answers are identical" in race(page, "hello")
    assert "as two samples of one law do" in race(page, "differs")
    set_up(page, seed="1", rule="block")
    assert "rule “block” keeps the law, not the words" in race(page, "differs")
    set_up(page, rule="coupled")
    assert "The answers differ, from token 1 on. They should not" in race(page, "differs")
    api.speculates = False
    assert race(page, "hello") == "Nothing was raced, for speculation was off: No draft is loaded."


def test_a_race_does_not_run_beside_an_answer(open_page, api):
    page = open_page()
    page.fill("#chat-prompt", "slow")
    page.keyboard.press("Enter")
    page.locator(".answer .accepted").first.wait_for()
    page.click("nav a[href='#race']")
    race(page, "hello")
    assert api.cancelled == 1
    page.click("nav a[href='#chat']")
    assert page.inner_text(".answer .note").startswith("Stopped after")


def test_a_race_can_be_stopped_and_told_of_errors(open_page, api):
    page = open_page("#race")
    page.fill("#race-prompt", "slow")
    page.keyboard.press("Enter")
    page.locator("#lane-plain .tokens .t").nth(2).wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Race").wait_for()
    assert page.is_hidden("#verdict")
    assert len(api.requests) == 2
    page.fill("#race-prompt", "busy")
    page.keyboard.press("Enter")
    page.locator("#race-error").wait_for()
    assert page.inner_text("#race-error").startswith("The server is busy")


def test_long_answers_are_appended_to_and_never_drawn_anew(open_page):
    page = open_page()
    set_up(page, max_tokens="100000", alternatives=False)
    page.evaluate("""() => {
      window.changes = { added: 0, removed: 0 };
      new MutationObserver((records) => {
        for (const { target, addedNodes, removedNodes } of records) {
          if (target.className !== "tokens") continue;
          changes.added += addedNodes.length;
          changes.removed += removedNodes.length;
        }
      }).observe(document.getElementById("messages"), { childList: true, subtree: true });
    }""")
    ask(page, "long")
    assert answer(page) == SCRIPTS["long"]
    assert page.evaluate("changes") == {"added": 4000, "removed": 0}
    assert page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 1")  # the end is in view
