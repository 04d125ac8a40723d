"""How a plan looks on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from outrider.cli.text import one_line
from outrider.planner.document import Figure, Outcome, Plan, Prompts
from outrider.planner.predict import LEAST_PROMPTS

_SHOWN = 12  # choices


def show_plan(plan: Plan, saved_as: str | None) -> None:
    """Print the choices, the best first, the best of each family, and what to do."""
    console = Console(highlight=False, markup=False)
    console.width = console.width if console.is_terminal else 160
    shown = _shown(plan)
    console.print(_choices(plan, shown))
    if len(plan.choices) > len(shown):
        console.print(f"   ... and {len(plan.choices) - len(shown)} slower ones, in --json and --report")
    console.print()
    if any(one.measured_tokens_per_s is not None for one in plan.choices):
        console.print(_runs(plan))
        console.print()
    if plan.by_family:
        console.print(_families(plan))
        console.print()
    for line in [*_notes(plan), *_advice(plan, saved_as)]:
        console.print(one_line(line), soft_wrap=not console.is_terminal)


def _shown(plan: Plan) -> list[int]:
    """Return the fastest choices, the recommended one and plain decoding, by number."""
    order = sorted(range(len(plan.choices)), key=lambda number: -plan.choices[number].speed.tokens_per_s.value)
    return [number for rank, number in enumerate(order) if rank < _SHOWN or number in (0, plan.recommended)]


def _choices(plan: Plan, shown: list[int]) -> Table:
    table = Table("", "choice", box=None, header_style="bold", pad_edge=False)
    for heading in ("tokens/s", "times plain", "tokens\na round", "drafted", "first\naccepted"):  # for 80 columns
        table.add_column(heading, justify="right", no_wrap=heading == "times plain")
    for number in shown:
        one = plan.choices[number]
        mark = "→" if number == plan.recommended else ""
        cells = [mark, one_line(one.name), f"{one.speed.tokens_per_s.value:.1f}", _interval(one.speed.speedup)]
        cells += [f"{one.tokens_per_round:.2f}", f"{one.drafted_per_round:.1f}", _first(one)]
        table.add_row(*cells, style="bold" if mark else None)
    return table


def _runs(plan: Plan) -> Table:
    table = Table("   choice", box=None, header_style="bold", pad_edge=False)
    for heading in ("run", "times plain", "predicted\nby run", "at the run's\ncosts"):
        table.add_column(heading, justify="right")
    plain = plan.choices[0].measured_tokens_per_s
    for one in plan.choices:
        run, repriced = one.measured_tokens_per_s, one.repriced_tokens_per_s
        if run and plain:
            then = "" if repriced is None else f"{repriced / run:.2f}"
            cells = [f"{run:.1f}", f"{run / plain:.2f}", f"{one.speed.tokens_per_s.value / run:.2f}", then]
            table.add_row("   " + one_line(one.name), *cells)
    return table


def _families(plan: Plan) -> Table:
    table = Table("family", "best choice", box=None, header_style="bold", pad_edge=False)
    for heading in ("tokens/s", "times plain", "prompts"):
        table.add_column(heading, justify="right")
    for family, number in plan.by_family.items():
        one = plan.choices[number]
        speed = one.families[family]
        rate = f"{speed.tokens_per_s.value:.1f}"
        table.add_row(
            one_line(family), one_line(one.name), rate, _interval(speed.speedup), str(plan.prompts.families[family])
        )
    return table


def _notes(plan: Plan) -> list[str]:
    lines = [_basis(plan.prompts)]
    spread = max(one.spread for one in plan.passes)
    if plan.is_noisy:
        lines.append(
            f"This machine is noisy: times of one pass differ by {spread:.0%} even after measuring again and again. "
            "Rates may be off by as much; close what else is running and plan again."
        )
    drifts = [f"{one.drift:.2f} ({one.model})" for one in plan.passes if one.drift is not None]
    if drifts:
        lines.append(
            f"When choices were run, passes took {', '.join(drifts)} times what they took before; at the run's costs: "
            "predicted by that, by run."
        )
    wrong = [one.name for one in plan.choices if one.differing_answers]
    if wrong:
        lines.append(f"Run with other rounds than were predicted: {', '.join(wrong)}; please report this.")
    memory = plan.memory.total / 1e9
    lines.append(
        f"Memory of the recommended choice, with a context of {plan.settings.ctx_size} tokens: {memory:.2f} GB."
    )
    lines += [f"Left out: {one.reference}: {one.reason}" for one in plan.left_out]
    return lines


def _basis(prompts: Prompts) -> str:
    """Say what the figures come from."""
    basis = f"From {prompts.measured} of {prompts.given} prompts, {prompts.tokens} tokens of answers"
    if prompts.measured == 1:
        return "From a single prompt, which says nothing of others: there is no interval."
    if prompts.measured < LEAST_PROMPTS:
        return f"{basis}: too few for an interval, which takes {LEAST_PROMPTS}."
    return f"{basis}; times plain: with an interval of 95% over prompts, for families of {LEAST_PROMPTS} and more."


def _advice(plan: Plan, saved_as: str | None) -> list[str]:
    best = plan.best
    if not plan.speculates:
        return [
            " ".join(["Do not speculate: nothing that was tried is clearly faster than plain decoding.", *plan.doubts])
        ]
    flags = [
        "--draft",
        ",".join(best.drafts) if len(best.drafts) > 1 or "ngram" in best.drafts else f"{best.drafts[0]},none",
    ]
    if best.num_speculative_tokens is not None:
        flags += ["--num-speculative-tokens", str(best.num_speculative_tokens)]
    if best.draft_tree:
        flags += ["--draft-tree", str(best.draft_tree)]
    how = f"--plan {saved_as}" if saved_as else " ".join(flags)
    gain = f"{_interval(best.speed.speedup)} times plain decoding"
    return [" ".join([f"Speculate with {best.name}: {gain}.", *plan.doubts, f"Use {how}."])]


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.2f}"
    return f"{figure.value:.2f} [{figure.low:.2f}, {figure.high:.2f}]"


def _first(one: Outcome) -> str:
    return f"{one.positions[0].acceptance_prob.value:.0%}" if one.positions else ""
