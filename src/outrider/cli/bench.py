"""``outrider bench``: plain decoding and speculation, measured in pairs on prompts of the user's."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outrider.cli.flags import Flags, whole, with_flags
from outrider.cli.prompts import Prompt, read_prompts
from outrider.errors import UsageError

if TYPE_CHECKING:
    from outrider.engine.llm import LLM
    from outrider.metrics.paired import Turn

PLAIN, SPECULATIVE = "plain", "speculative"


@with_flags
def bench(
    *,
    prompts: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="JSON lines with prompt and, if wanted, id, family; - is stdin. [required]"),
    ] = None,
    repeats: Annotated[
        int, typer.Option(metavar="N", parser=whole, help="How often each prompt is answered both ways.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    flags: Flags,
) -> None:
    """Measure what a draft gains on your prompts, family by family.

    Each prompt is answered without the draft and with it, one right after the other, and ratios are taken within such a
    pair. Ends with status 1 if greedy or seeded tokens differ between the two.
    """
    if prompts is None:
        raise UsageError(
            "no --prompts given; what a draft gains depends on what is asked, so name a file of prompts like yours, "
            'one {"prompt": "...", "family": "..."} a line'
        )
    if repeats < 1:
        raise UsageError(f"--repeats is {repeats}; it must be at least 1")
    if flags.store is not None:
        raise UsageError("--store keeps answers, and a prompt asked again would be answered from them; leave it out")
    llm, turns = _measure(read_prompts(prompts), flags, repeats)
    drafters = ",".join(llm.drafters) or "none"
    document = {
        "target": flags.target or llm.model.name,
        "draft": flags.draft if flags.plan is None else drafters,
        "repeats": repeats,
        **_results(turns, flags, llm),
    }
    if as_json:
        sys.stdout.write(json.dumps(document) + "\n")
    else:
        _show(document)
    if document["same_tokens"] is False:
        raise typer.Exit(1)


def _measure(many: list[Prompt], flags: Flags, repeats: int) -> tuple[LLM, list[Turn]]:
    from outrider.cli.progress import counting
    from outrider.cli.terminal import Notes
    from outrider.engine.contestant import Outrider
    from outrider.engine.prompts import naming
    from outrider.metrics.paired import take_turns

    params, chat = flags.params(), not flags.no_chat
    notes = Notes()
    llm = flags.load(notes)
    for one in many:  # all of them, before the first is answered
        with naming(f"prompt {one.id}"):
            llm.encode(one.text, chat=chat)
    contestants = [Outrider(PLAIN, llm.without_draft(), params, chat)]
    if llm.drafters:
        contestants.append(Outrider(SPECULATIVE, llm, params, chat))
    total = len(many) * repeats
    with counting(notes, "measuring", total) as count:

        def tell(turn: Turn) -> None:
            rates = ", ".join(f"{name} {answer.tokens_per_s:.1f}" for name, answer in turn.answers.items())
            count(f"{turn.prompt.id}: {rates} tokens/s")

        return llm, take_turns(contestants, many, repeats=repeats, num_tokens=params.max_tokens, tell=tell)


def _results(turns: list[Turn], flags: Flags, llm: LLM) -> dict[str, Any]:
    from outrider.metrics.paired import by_family, summary

    is_fixed = flags.temperature == 0 or (flags.seed is not None and llm.rule in ("auto", "coupled"))
    differing = [turn.prompt.id for turn in turns if len({one.token_ids for one in turn.answers.values()}) > 1]
    return {
        "max_tokens": flags.max_tokens,
        "temperature": flags.temperature,
        "same_tokens": not differing if is_fixed and llm.drafters else None,
        "differing": list(dict.fromkeys(differing)) if is_fixed else [],
        "all": summary(turns, PLAIN),
        "families": {family: summary(own, PLAIN) for family, own in by_family(turns).items()},
        "turns": [
            {
                "id": turn.prompt.id,
                "family": turn.prompt.family,
                "is_rated": turn.is_rated,
                **{
                    name: {
                        "tokens": len(answer.token_ids),
                        "tokens_per_s": answer.tokens_per_s,
                        "first_token_s": answer.first_token_s,
                    }
                    for name, answer in turn.answers.items()
                },
            }
            for turn in turns
        ],
    }


def _show(document: dict[str, Any]) -> None:
    """Print a line for each family and for each way, and what the figures mean."""
    from rich.console import Console
    from rich.table import Table

    from outrider.cli.text import one_line
    from outrider.metrics.paired import MIN_DECODED

    table = Table("family", "", box=None, header_style="bold", pad_edge=False)
    for heading in ("prompts", "tokens/s", "times plain", "first token", "accepted", "acceptance length"):
        table.add_column(heading, justify="right")
    for family, ways in {**document["families"], "all": document["all"]}.items():
        for name, way in ways.items():
            table.add_row(one_line(family) if name == PLAIN else "", name, *_cells(way))
    console = Console(highlight=False, markup=False)
    console.width = max(console.width, 120) if not console.is_terminal else console.width
    console.print(table)
    console.print(
        "Medians [quartiles]; times plain: ratio within a pair, median over prompts [95% interval, from six on]. "
        f"Answers of less than {MIN_DECODED + 1} tokens are not rated."
    )
    if len(document["all"]) == 1:
        console.print("Plain decoding alone: name what drafts with --draft to see what it gains.")
    if document["same_tokens"] is not None:
        same = "the same with and without the draft, in every answer"
        differing = f"NOT the same with and without the draft: {', '.join(document['differing'])}"
        console.print(f"Tokens: {same if document['same_tokens'] else one_line(differing)}.")


def _cells(way: dict[str, Any]) -> list[str]:
    rate_accepted, length = way["acceptance_rate"], way["mean_acceptance_length"]
    counts = ["", ""] if rate_accepted is None else [f"{rate_accepted:.0%}", f"{length:.1f}"]
    if way["tokens_per_s"] is None:
        return ["0", "too short", "", "", *counts]
    rate, ratio, first = way["tokens_per_s"], way["ratio_to_plain"], way["first_token_s"]
    quartiles = f" [{rate['q1']:.0f}, {rate['q3']:.0f}]" if rate["n"] > 1 else ""
    interval = ratio["interval_95"]
    spread = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return [
        str(ratio["n"]),
        f"{rate['median']:.1f}{quartiles}",
        f"{ratio['median']:.2f}{spread}",
        f"{first['median']:.2f} s",
        *counts,
    ]
