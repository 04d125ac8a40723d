"""How answers look to people."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from outrider.cli.text import harmless, one_line
from outrider.engine.outputs import EmittedToken, GenerationOutput, Origin

_GREEN, _PLAIN = "\x1b[32m", "\x1b[39m"


class Notes(Console):
    """What is said on stderr beside the answer."""

    def __init__(self) -> None:
        super().__init__(stderr=True, highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Write one line."""
        self.print(one_line(text), style="dim", markup=False)

    def on_broken_pipe(self) -> None:
        """Leave the exit status to those who know it, where Console would exit with 1."""
        raise BrokenPipeError


class AnswerPrinter:
    """Writes answers as they come, and nothing but their text when the output is not a terminal.

    On a terminal, what the draft proposed is green (unless NO_COLOR is set or the terminal knows no colours), and
    control characters are shown as U+FFFD.
    """

    def __init__(self, console: Console) -> None:
        self._file = console.file
        self._is_terminal = console.is_terminal
        self._has_colours = console.is_terminal and console.color_system is not None and not console.no_color
        self._ends_line = True

    def write(self, tokens: Iterable[EmittedToken]) -> None:
        """Write the text of some tokens."""
        for token in tokens:
            if token.text:
                self._file.write(self._shown(token))
                self._ends_line = token.text.endswith("\n")
        self._file.flush()

    def end(self) -> None:
        """End the last line, if it has begun."""
        if not self._ends_line:
            self._file.write("\n")
        self._file.flush()
        self._ends_line = True

    def _shown(self, token: EmittedToken) -> str:
        if not self._is_terminal:
            return token.text
        text = harmless(token.text)
        return f"{_GREEN}{text}{_PLAIN}" if self._has_colours and token.origin is Origin.ACCEPTED else text


def summary(output: GenerationOutput) -> str:
    """Return one line on an answer: how long, how fast, and what speculation did for it."""
    rate = output.timing.tokens_per_s
    speed = "" if rate is None else f", {rate:.1f} tokens/s"
    count = output.usage.completion_tokens
    size = f"{count} token{'s' if count > 1 else ''}{speed}"
    return f"{size}, the first after {output.timing.prefill_s:.2f} s | {_speculation(output)}"


def _speculation(output: GenerationOutput) -> str:
    done = output.speculation
    if not done.active:
        return f"speculation off: {done.reason}"
    problem = "" if done.problem is None else f", but {done.problem}"
    if done.acceptance_rate is None:
        return f"speculation on: {done.drafter}, which proposed nothing: this was plain decoding{problem}"
    counters, count = done.counters, output.usage.completion_tokens
    per_pass = count / max(1, count - counters.num_accepted_tokens)  # each pass gives a token beside those accepted
    return (
        f"speculation on: {done.drafter}, {counters.num_accepted_tokens} of {counters.num_draft_tokens} draft tokens "
        f"accepted ({done.acceptance_rate:.0%}), {per_pass:.1f} tokens a pass of the target (plain: 1){problem}"
    )
