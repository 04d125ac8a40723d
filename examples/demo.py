"""One prompt answered twice, plainly and with a draft: both speeds, and a check that the answers are the same.

    python examples/demo.py "Write a haiku about rivers."

What the draft proposed and the target accepted is green. Exit status: 0 if the answers are the same, 1 if not.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from outrider import LLM, GenerationOutput, Origin, OutriderError, SamplingParams
from outrider.cli.progress import loading
from outrider.cli.terminal import Notes
from outrider.cli.text import harmless
from outrider.engine.loading import load_model

REFRESH_S = 0.15  # drawing takes time from both answers alike; rarely enough, little


@dataclass
class Column:
    """One answer as it comes."""

    title: str
    speed: str = ""
    text: Text = field(default_factory=Text)

    def panel(self, console: Console, width: int, height: int | None) -> Panel:
        """Return the answer in a frame; its end, if the frame has a height that is too small."""
        lines = self.text.wrap(console, width - 4)
        return Panel(
            Group(*(lines if height is None else lines[2 - height :])),
            title=self.title,
            subtitle=self.speed,
            height=height,
        )


def side_by_side(columns: list[Column], console: Console, height: int | None = None) -> Table:
    """Return the columns, with the ends of texts that are higher than ``height``."""
    table = Table.grid(expand=True)
    for _ in columns:
        table.add_column(ratio=1)
    width = console.width // len(columns)
    table.add_row(*(column.panel(console, width, height) for column in columns))
    return table


def answer(llm: LLM, prompt: str, params: SamplingParams, column: Column, live: Live) -> GenerationOutput:
    """Generate into a column."""
    drawn_at = time.perf_counter()
    for chunk in llm.stream(prompt, params):
        for token in chunk.tokens:
            column.text.append(harmless(token.text), "green" if token.origin is Origin.ACCEPTED else "")
        if time.perf_counter() - drawn_at > REFRESH_S:
            live.refresh()
            drawn_at = time.perf_counter()
        if chunk.output is not None:
            column.speed = f"{chunk.output.timing.tokens_per_s or 0:.1f} tokens/s"
            live.refresh()
            return chunk.output
    raise AssertionError("the last chunk has the output")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("prompt")
    parser.add_argument("--target", default="qwen2.5-coder-1.5b")
    parser.add_argument("--draft", default="qwen2.5-coder-0.5b")
    parser.add_argument("--max-tokens", type=int, default=200)
    args = parser.parse_args()

    console = Console(highlight=False)
    with loading(Notes()) as resolver:
        target = load_model(args.target, resolver=resolver)
        draft = load_model(args.draft, resolver=resolver)
        llms = [LLM(target), LLM(target, draft)]
        for llm in llms:  # the first pass over a model's memory is slower than all others
            llm.generate(args.prompt, SamplingParams(max_tokens=2))

    params = SamplingParams(max_tokens=args.max_tokens)
    columns = [Column(f"{target.name} alone"), Column(f"with {draft.name} drafting")]
    with Live(
        console=console,
        auto_refresh=False,
        transient=True,
        get_renderable=lambda: side_by_side(columns, console, console.height - 1),
    ) as live:
        plain, fast = (
            answer(llm, args.prompt, params, column, live) for llm, column in zip(llms, columns, strict=True)
        )
    console.print(side_by_side(columns, console))
    return report(plain, fast, console)


def report(plain: GenerationOutput, fast: GenerationOutput, console: Console) -> int:
    """Say how the two compare; return the exit status."""
    is_same = plain.token_ids == fast.token_ids and plain.text == fast.text
    done = fast.speculation.to_json()
    line = Text()
    if plain.timing.tokens_per_s and fast.timing.tokens_per_s:
        line.append(f"{fast.timing.tokens_per_s / plain.timing.tokens_per_s:.2f} times as fast", style="bold")
        line.append(": ")
    line.append(
        f"{done['num_accepted_tokens']} of {len(fast.token_ids)} tokens came from the draft (green), "
        f"{done['num_drafts']} drafts, the longest of {len(done['num_accepted_tokens_per_pos'])} tokens"
    )
    console.print(line)
    if is_same:
        cut = ", cut off there by --max-tokens" if plain.finish_reason == "length" else ""
        console.print(f"the same {len(plain.token_ids)} tokens, the same text{cut}", style="green")
        return 0
    pairs = zip(plain.token_ids, fast.token_ids, strict=False)
    shorter = min(len(plain.token_ids), len(fast.token_ids))
    first = next((place for place, (one, other) in enumerate(pairs) if one != other), shorter)
    console.print(f"THE ANSWERS DIFFER, from token {first} on", style="bold red")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OutriderError as error:
        sys.stderr.write(f"demo: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
