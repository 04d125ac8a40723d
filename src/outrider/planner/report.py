"""A plan as one page of HTML: figures, plots and where they come from. Nothing in it is fetched from anywhere."""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from outrider.planner.document import Figure, Plan
from outrider.planner.plots import acceptance_plot, cost_plot, speedup_plot, validation_plot
from outrider.planner.predict import LEAST_PROMPTS


def html_report(plan: Plan, *, command: str, version: str) -> str:
    """Return the page.

    Args:
        plan: What it shows.
        command: That made the plan.
        version: Of the package.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["interval"] = _interval
    template = resources.files("outrider.planner").joinpath("report.html").read_text(encoding="utf-8")
    plots = {
        "Speed by length": speedup_plot(plan),
        "Acceptance by place": acceptance_plot(plan),
        "Cost of passes": cost_plot(plan),
        "Predicted against measured": validation_plot(plan),
    }
    shown = {title: Markup(svg) for title, svg in plots.items() if svg is not None}  # noqa: S704 - made here
    order = sorted(range(len(plan.choices)), key=lambda number: -plan.choices[number].speed.tokens_per_s.value)
    return environment.from_string(template).render(
        plan=plan,
        plots=shown,
        order=order,
        least_prompts=LEAST_PROMPTS,
        is_run=any(one.measured_tokens_per_s is not None for one in plan.choices),
        spread=max(one.spread for one in plan.passes),
        command=command,
        version=version,
    )


def _interval(figure: Figure, digits: int = 2) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.{digits}f}"
    return f"{figure.value:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"
