"""What a visitor of the page does."""

WIDE, PHONE = {"width": 1100, "height": 760}, {"width": 320, "height": 640}


def ask(page, text):
    """Ask and wait for the end of the answer."""
    page.fill("#chat-prompt", text)
    page.keyboard.press("Enter")
    page.locator(".answer").last.locator(".note:not(:empty)").wait_for()


def refused(page, text):
    """Ask what is refused; return the words of the alert."""
    page.fill("#chat-prompt", text)
    page.keyboard.press("Enter")
    page.locator("#chat-error").wait_for()
    return page.inner_text("#chat-error")


def set_up(page, **values):
    """Set the settings of these names."""
    page.click("#open-settings")
    for name, value in values.items():
        field = page.locator(f"#settings [name={name}]")
        if isinstance(value, bool):
            field.set_checked(value)
        elif name == "rule":
            field.select_option(value)
        else:
            field.fill(value)
    page.keyboard.press("Escape")


def answer(page):
    return page.locator(".answer .tokens").last.text_content()


def race(page, text):
    page.fill("#race-prompt", text)
    page.keyboard.press("Enter")
    page.locator("#verdict").wait_for()
    return page.inner_text("#verdict p")
