"""Draws the README's plot from the document of ``compare``: tokens per second by engine, ours first.

    python -m benchmarks.peers.plot benchmarks/results/peers.json docs/peers.svg

Its ink follows the reader's light or dark page.
"""

from __future__ import annotations

import argparse
import json
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.peers.compare import OURS

_INK = "#010101"  # stands for the page's
_OURS, _THEIRS = "#1098ad", "#868e96"
_LABELS = {"humaneval": "code (humaneval)", "all": "all kinds of prompts"}
_OPACITY = {"humaneval": 1.0, "all": 0.55}
_INK_OF_PAGE = (
    "<style>svg { color: #1f2328 } @media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>\n<defs>"
)
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "peers",
    "font.family": "sans-serif",
    "font.size": 10,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def rates(results: dict[str, Any], temperature: str, group: str) -> dict[str, float]:
    """Return the median tokens per second by engine: ours first, over all that we ran beside, then the fastest."""
    theirs, ours = {}, []
    for name, measured in results["peers"].items():
        figures = measured.get(temperature, {}).get(group)
        if figures is not None and figures["outrider_to_peer"] is not None:
            theirs[name] = figures[name]["tokens_per_s"]["median"]
            ours.append(figures[OURS]["tokens_per_s"]["median"])
    if not ours:
        return {}
    return {OURS: median(ours), **dict(sorted(theirs.items(), key=lambda item: -item[1]))}


def draw(results: dict[str, Any]) -> str:
    """Return the plot as SVG: a panel a temperature, a line an engine, a bar a kind of prompts.

    Raises:
        ValueError: No engine was measured.
    """
    panels = sorted({key for measured in results["peers"].values() for key in measured if key.startswith("temper")})
    groups = [group for group in _LABELS if any(rates(results, panel, group) for panel in panels)]
    if all(str(one).startswith("humaneval") for one in results.get("prompts", ["any"])):
        groups = groups[:1]
    tables = {panel: {group: rates(results, panel, group) for group in groups} for panel in panels}
    tables = {panel: table for panel, table in tables.items() if any(table.values())}
    if not tables:
        raise ValueError("the document holds no rates; run benchmarks.peers.compare to the end of an engine")
    names = list(dict.fromkeys(name for table in tables.values() for name in table[groups[-1]]))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 0.3 * len(groups) * len(names) + 1.0), layout="constrained")
        several = figure.subplots(1, len(tables), sharey=True, squeeze=False)[0]
        for axes, (panel, table) in zip(several, tables.items(), strict=True):
            _bars(axes, table, names)
            axes.set_title("greedy" if panel == "temperature 0" else panel, fontsize=10)
            axes.set_xlabel("tokens per second")
            axes.margins(x=0.16)
        axes.set_yticks(range(len(names)), ["Outrider" if name == OURS else name for name in names])
        axes.invert_yaxis()
        if len(groups) > 1:
            several[-1].legend(loc="lower right", frameon=False, fontsize=8)
        svg = StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return svg.getvalue().replace(_INK, "currentColor").replace("<defs>", _INK_OF_PAGE, 1)


def _bars(axes: Axes, table: dict[str, dict[str, float]], names: list[str]) -> None:
    """Draw a bar for each engine and kind of prompts; ours have a colour of their own."""
    width = 0.8 / len(table)
    for number, (group, own) in enumerate(table.items()):
        present = [(place, name) for place, name in enumerate(names) if name in own]
        bars = axes.barh(
            [place + (number - (len(table) - 1) / 2) * width for place, _ in present],
            [own[name] for _, name in present],
            width * 0.92,
            color=[_OURS if name == OURS else _THEIRS for _, name in present],
            alpha=_OPACITY[group],
            label=_LABELS[group],
        )
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the plot of the comparison with other engines.")
    parser.add_argument("document", type=Path)
    parser.add_argument("svg", type=Path)
    arguments = parser.parse_args()
    arguments.svg.write_text(draw(json.loads(arguments.document.read_text())["results"]), encoding="utf-8")


if __name__ == "__main__":
    main()
