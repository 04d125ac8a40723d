"""The plots of a plan, as SVG to be put into a page: its colours follow the page's, and nothing is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

from outrider.planner.document import Figure, Outcome, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Stand-ins that become the page's own colours.
_INK, _FAINT, _PAPER = "#010101", "#020202", "#030303"
_SERIES = (
    "#1098ad",
    "#e8590c",
    "#7950f2",
    "#37b24d",
    "#d6336c",
    "#a07a50",
    "#228be6",
    "#868e96",
)  # legible on light and dark
_FEWEST = 10  # tested tokens that a place is plotted for
_OF_PAGE = {_INK: "var(--ink)", _FAINT: "var(--faint)", _PAPER: "var(--paper)"}
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a name may hold anything
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _FAINT,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _FAINT,
    "grid.linewidth": 0.5,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


def acceptance_plot(plan: Plan) -> str | None:
    """Return acceptance by place, of the longest chain of each draft; None if nothing was drafted."""
    longest: dict[tuple[str, ...], Outcome] = {}
    for one in plan.choices:
        if one.positions and one.rule == plan.settings.rule and not one.draft_tree:
            before = longest.get(one.drafts)
            if before is None or len(one.positions) >= len(before.positions):
                longest[one.drafts] = one
    if not longest:
        return None

    def draw(axes: Axes) -> None:
        for colour, one in zip(_colours(), longest.values(), strict=False):
            known = [position for position in one.positions if position.tested >= _FEWEST] or one.positions[:1]
            places = range(1, len(known) + 1)
            figures = [position.acceptance_prob for position in known]
            axes.errorbar(
                places, [figure.value for figure in figures], yerr=_errors(figures), marker="o", markersize=4,
                color=colour, linewidth=1.5, elinewidth=0.8, capsize=2, label=_short(one.name),
            )  # fmt: skip
        axes.locator_params(axis="x", integer=True)
        axes.set(xlabel="place in the draft", ylabel="chance that a tested token is accepted", ylim=(0, 1.03))
        axes.set_xlim(0.5, max(axes.get_xlim()[1], 2.5))
        axes.legend(fontsize=8, labelcolor=_INK)

    return _svg("acceptance", draw)


def cost_plot(plan: Plan) -> str:
    """Return how long passes take, by rows and by what is in the cache."""

    def draw(axes: Axes) -> None:
        colours = iter(_colours())
        for passes in plan.passes:
            for context in sorted({one.context for one in passes.timed}):
                own = [one for one in passes.timed if one.context == context and one.sequences == 1 and one.rows <= 65]
                own.sort(key=lambda one: one.rows)
                milliseconds = [1e3 * one.seconds for one in own]
                errors = [
                    [1e3 * (one.seconds - one.low) for one in own],
                    [1e3 * (one.high - one.seconds) for one in own],
                ]
                axes.errorbar(
                    [one.rows for one in own], milliseconds, yerr=errors, marker="o", markersize=3, linewidth=1.2,
                    elinewidth=0.8, color=next(colours), label=f"{_short(passes.model)}, {context} tokens in the cache",
                )  # fmt: skip
        axes.set(xlabel="rows of a pass", ylabel="milliseconds", ylim=(0, None))
        axes.legend(fontsize=8, labelcolor=_INK)

    return _svg("costs", draw)


def speedup_plot(plan: Plan) -> str | None:
    """Return the speed, times plain decoding's, by the limit of draft tokens; None if nothing was drafted."""
    series: dict[tuple[str, ...], list[Outcome]] = {}
    for one in plan.choices:
        if one.num_speculative_tokens and not one.draft_tree and one.rule == plan.settings.rule:
            series.setdefault(one.drafts, []).append(one)
    if not series:
        return None

    def draw(axes: Axes) -> None:
        for colour, (drafts, own) in zip(_colours(), series.items(), strict=False):
            own.sort(key=lambda one: one.num_speculative_tokens or 0)
            figures = [one.speed.speedup for one in own]
            axes.errorbar(
                [one.num_speculative_tokens or 0 for one in own], [figure.value for figure in figures],
                yerr=_errors(figures), marker="o", markersize=4, linewidth=1.5, elinewidth=0.8, capsize=2, color=colour,
                label=_short(" + ".join(drafts)),
            )  # fmt: skip
        axes.axhline(1, color=_INK, linewidth=1, linestyle="--")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set(xlabel="most draft tokens a round", ylabel="speed, times plain decoding's", ylim=(0, None))
        axes.legend(fontsize=8, labelcolor=_INK)

    return _svg("speedup", draw)


def validation_plot(plan: Plan) -> str | None:
    """Return predicted against measured speed, by family; None if nothing was run."""
    run = [one for one in plan.choices if one.measured_tokens_per_s]
    if not run:
        return None

    def draw(axes: Axes) -> None:
        highest = 0.0
        for colour, one in zip(_colours(), run, strict=False):
            by_family = one.measured_families or {}
            repriced = one.repriced_families or {}
            rates = [
                (by_family[name], speed.tokens_per_s.value, repriced.get(name, speed.tokens_per_s.value))
                for name, speed in one.families.items()
            ]
            of_all, planned = one.measured_tokens_per_s or 0.0, one.speed.tokens_per_s.value
            rates = rates or [(of_all, planned, one.repriced_tokens_per_s or planned)]
            highest = max(highest, *(value for triple in rates for value in triple))
            measured, predicted, then = zip(*rates, strict=True)
            axes.scatter(measured, predicted, s=18, facecolors="none", edgecolors=colour, linewidths=0.8)
            axes.scatter(measured, then, s=18, color=colour, label=_short(one.name))
        line = [0, 1.05 * highest]
        axes.plot(line, line, color=_INK, linewidth=1)
        axes.fill_between(line, [0.9 * x for x in line], [1.1 * x for x in line], color=_FAINT, alpha=0.4, linewidth=0)
        label = "predicted tokens/s (hollow: at the plan's costs)"
        axes.set(xlabel="measured tokens/s", ylabel=label, xlim=(0, line[1]), ylim=(0, line[1]))
        axes.legend(fontsize=8, labelcolor=_INK)

    return _svg("validation", draw)


def _svg(name: str, draw: Callable[[Axes], None]) -> str:
    with _figure(name) as (axes, save):
        draw(axes)
        text = save()
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text[text.index("<svg") :])
    for stand_in, colour in _OF_PAGE.items():
        text = text.replace(stand_in, colour)
    return text


@contextmanager
def _figure(name: str) -> Iterator[tuple[Axes, Callable[[], str]]]:
    import matplotlib  # noqa: PLC0415 - slow to import, and only reports need it
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        canvas = Canvas(figsize=(6.4, 4.0), layout="constrained")

        def save() -> str:
            file = StringIO()
            canvas.savefig(file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
            return file.getvalue()

        yield canvas.subplots(), save


def _errors(figures: Sequence[Figure]) -> list[list[float]]:
    low = [max(0.0, one.value - (one.value if one.low is None else one.low)) for one in figures]
    high = [max(0.0, (one.value if one.high is None else one.high) - one.value) for one in figures]
    return [low, high]


def _colours() -> list[str]:
    return [*_SERIES] * 8


def _short(name: str) -> str:
    """Return a name that fits into a legend."""
    return name if len(name) <= 60 else name[:57] + "..."
