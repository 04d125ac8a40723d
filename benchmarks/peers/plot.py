"""Draws the README's plot from the document of ``compare``: tokens per second of every engine in every setting.

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
from matplotlib.figure import Figure

from benchmarks.peers.compare import OURS

_INK = "#010101"  # stands for the page's
_COLOURS = {"humaneval": "#1098ad", "all": "#f08c00"}
_LABELS = {"humaneval": "code (humaneval)", "all": "all kinds of prompts"}
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
    tables = {panel: {group: rates(results, panel, group) for group in _COLOURS} for panel in panels}
    tables = {panel: groups for panel, groups in tables.items() if groups["all"]}
    if not tables:
        raise ValueError("the document holds no rates; run benchmarks.peers.compare to the end of an engine")
    names = list(next(iter(tables.values()))["all"])
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(5 * len(tables) + 1, 0.42 * len(names) + 1.4), layout="constrained")
        for axes, (panel, groups) in zip(
            figure.subplots(1, len(tables), sharey=True, squeeze=False)[0], tables.items(), strict=True
        ):
            for offset, (group, colour) in zip((-0.2, 0.2), _COLOURS.items(), strict=True):
                own = [(place, groups[group][name]) for place, name in enumerate(names) if name in groups[group]]
                bars = axes.barh([place + offset for place, _ in own], [rate for _, rate in own], 0.38, color=colour)
                bars.set_label(_LABELS[group])
                axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
            axes.set_title("greedy" if panel == "temperature 0" else panel, fontsize=11)
            axes.set_xlabel("tokens per second")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.legend(loc="lower right", frameon=False)
        svg = StringIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
    return svg.getvalue().replace(_INK, "currentColor").replace("<defs>", _INK_OF_PAGE, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the plot of the comparison with other engines.")
    parser.add_argument("document", type=Path)
    parser.add_argument("svg", type=Path)
    arguments = parser.parse_args()
    arguments.svg.write_text(draw(json.loads(arguments.document.read_text())["results"]), encoding="utf-8")


if __name__ == "__main__":
    main()
