"""How answers look: colour for what the draft got right, on a terminal only; and the model gives no orders."""

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from outrider.cli import text
from outrider.cli.terminal import AnswerPrinter, Notes, summary
from outrider.engine.outputs import EmittedToken, GenerationOutput, Origin, Speculation, Timing, Usage
from outrider.metrics import SpeculationCounters

TOKENS = [
    EmittedToken(1, Origin.PLAIN, "one "),
    EmittedToken(2, Origin.ACCEPTED, "two\t"),
    EmittedToken(3, Origin.RECOVERED, ""),
    EmittedToken(4, Origin.BONUS, "three"),
]


def shown(tokens, **options):
    file = io.StringIO()
    printer = AnswerPrinter(Console(file=file, **options))
    printer.write(tokens)
    printer.end()
    return file.getvalue()


def test_on_a_terminal_accepted_tokens_are_green_and_the_line_ends():
    text = shown(TOKENS, force_terminal=True, color_system="standard")
    assert text == "one \x1b[32mtwo\t\x1b[39mthree\n"


def test_elsewhere_there_is_only_the_text():
    assert shown(TOKENS) == "one two\tthree\n"


@pytest.mark.parametrize("options", [{"no_color": True}, {"color_system": None}])
def test_a_terminal_without_colours_gets_none(options):
    assert shown(TOKENS, force_terminal=True, **options) == "one two\tthree\n"


def test_the_line_is_not_ended_twice():
    assert shown([EmittedToken(1, Origin.PLAIN, "one\n")]) == "one\n"
    assert shown([]) == ""


def test_a_terminal_is_not_made_to_obey_the_model():
    hostile = [EmittedToken(1, Origin.PLAIN, "a\x1b[2J\x1b]0;title\x07\x9b31m\rb\x00")]
    text = shown(hostile, force_terminal=True, color_system="standard")
    assert text == "a\ufffd[2J\ufffd]0;title\ufffd\ufffd31m\ufffdb\ufffd\n"
    assert shown(hostile) == "a\x1b[2J\x1b]0;title\x07\x9b31m\rb\x00\n"


def output(speculation, num_tokens=5, tokens_per_s=20.04):
    return GenerationOutput(
        "", (0,) * num_tokens, "stop", Usage(3, num_tokens), speculation, Timing(1, 0.5, 0.2, tokens_per_s)
    )


def test_the_account_says_what_speculation_did():
    counters = SpeculationCounters()
    counters.observe(4, 3)
    counters.observe(4, 1)
    speculation = Speculation(active=True, reason="", drafter="small", counters=counters)
    assert summary(output(speculation, 7)) == (
        "7 tokens, 20.0 tokens/s, the first after 0.50 s | "
        "speculation on: small, 4 of 8 draft tokens accepted (50%), 2.3 tokens a pass of the target (plain: 1)"
    )
    failed = replace(speculation, problem="it failed and was dropped: OSError: the disk is full")
    assert summary(output(failed)).endswith(
        "tokens a pass of the target (plain: 1), but it failed and was dropped: OSError: the disk is full"
    )


def test_the_account_says_why_speculation_was_off_and_that_nothing_was_proposed():
    off = summary(output(Speculation(active=False, reason="no draft was given"), 1, None))
    assert off == "1 token, the first after 0.50 s | speculation off: no draft was given"
    idle = summary(output(Speculation(active=True, reason="why", drafter="ngram")))
    assert idle.endswith("| speculation on: ngram, which proposed nothing: this was plain decoding")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_whatever_is_said_beside_the_answer_is_one_harmless_line(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    Notes().say("1/2 a\x1b[2J\nb\x9b31m: [red]5 tokens[/red]")
    assert sys.stderr.getvalue() == "1/2 a\ufffd[2J b\ufffd31m: [red]5 tokens[/red]\n"


@pytest.mark.parametrize(("file", "shown"), [(Terminal, "/x\ufffd[2J\n"), (io.StringIO, "/x\x1b[2J\n")])
def test_paths_are_harmless_on_a_terminal_and_exact_elsewhere(monkeypatch, file, shown):
    monkeypatch.setattr(sys, "stdout", file())
    text.write_line("/x\x1b[2J")
    assert sys.stdout.getvalue() == shown
