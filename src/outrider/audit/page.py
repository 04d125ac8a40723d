"""A certificate as a page for people: one HTML file that needs nothing else, and runs no script."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import sqrt
from typing import Any

_COLOURS = {"pass": "#1a7f4b", "fail": "#b3261e", "inconclusive": "#8a5a00", "void": "#8a5a00"}
_SAYS = {
    "pass": "Nothing differs from what the target model would have said.",
    "fail": "What is emitted is not what the target model would have said.",
    "inconclusive": "Too little was seen to tell.",
    "void": "A wrong engine was not found out, so this audit proves nothing.",
}
_KINDS = {
    "equality": "must hold every time",
    "fit": "counts against the exact law",
    "homogeneity": "two samples, one law",
    "rate": "how often, against the exact chance",
    "course": "may be looked at, and stopped, at any time",
}
_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:62rem;padding:1.5rem;color:#1c1c1e;background:#fff}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.verdict{border-left:.5rem solid var(--tone);padding:.75rem 1rem;margin:1rem 0;background:#f6f6f4}
.verdict b{color:var(--tone);font-size:1.3rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #ddd;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
code{font:.85rem ui-monospace,monospace;overflow-wrap:anywhere}
.bad{color:#b3261e;font-weight:600}.dim{color:#666}
svg{display:block}.scroll{overflow-x:auto}
@media (max-width:40rem){body{padding:1rem}.how{display:none}table{font-size:.8rem}
th,td{padding:.35rem .2rem}td:first-child{width:100%}svg{width:4rem}}
@media (prefers-color-scheme:dark){body{background:#161618;color:#eee}.verdict{background:#232326}
th,td{border-color:#3a3a3e}.dim{color:#aaa}.bad{color:#ff8a80}}
"""


def page(document: Mapping[str, Any]) -> str:
    """Return the page of a certificate's document."""
    verdict, claim = document["verdict"], document["claim"]
    parts = [
        f"<h1>Losslessness certificate: {_text(document['kind'])}</h1>",
        f'<p class="dim">{_text(document["created"])}, Outrider {_text(document["versions"].get("outrider", ""))}</p>',
        f'<div class="verdict" style="--tone:{_COLOURS[verdict]}"><b>{_text(verdict)}</b><br>{_SAYS[verdict]}'
        f"<br>{_text(document['reason'][:1].upper() + document['reason'][1:])}.</div>",
        "<h2>What was audited</h2>",
        _facts(document["subject"]),
        "<h2>Evidence</h2>",
        _legend(document["evidence"], claim["level"]),
        _evidence(document["evidence"], judged=True),
        *_controls(document["controls"]),
        "<h2>Settings</h2>",
        _facts(document["settings"]),
        "<h2>Made with</h2>",
        _facts(document["versions"]),
        *(["<h2>What this does not show</h2>", _list(document["notes"])] if document["notes"] else []),
        "<h2>Check it</h2>",
        "<p><code>outrider audit check</code> on the JSON beside this page does the sums again, from the counts to the "
        f"verdict. To run the audit again:</p><p><code>{_text(document['command'])}</code></p>",
        f'<p class="dim">Digest <code>{_text(document["digest"])}</code></p>',
    ]
    head = f"<title>{_text(verdict)}: losslessness certificate</title><style>{_STYLE}</style>"
    view = '<meta name="viewport" content="width=device-width,initial-scale=1">'
    return f'<!doctype html><html lang="en"><meta charset="utf-8">{view}{head}<body>{"".join(parts)}</body></html>\n'


def _text(value: object) -> str:
    return escape(str(value))


def _legend(pieces: Sequence[Mapping[str, Any]], level: float) -> str:
    """Return what there is to know of chance and of bars, where there are any."""
    kinds = {piece["kind"] for piece in pieces}
    said = []
    if kinds - {"equality"}:
        said.append(f"A right engine fails with a chance below {level:g} over all of it (Holm's correction).")
    if "fit" in kinds:
        said.append(
            "The bars show how far each cell's count lies from the law, in standard deviations; the lines are at 3."
        )
    return f"<p>{' '.join(said)}</p>" if said else ""


def _controls(controls: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the wrong engines: in one table if there are many, of which one thing was looked at each."""
    if len(controls) > 1 and all(len(control["evidence"]) == 1 for control in controls):
        missed = [_text(control["name"]) for control in controls if not control["failed"]]
        said = f"Not found out: <b>{'; '.join(missed)}</b>." if missed else "Each was <b>found out, as it must be</b>."
        return [
            "<h2>Negative controls</h2>",
            f"<p>{len(controls)} wrong engines, audited in the same way. {said}</p>",
            _evidence([{**control["evidence"][0], "name": control["name"]} for control in controls], judged=False),
        ]
    parts = []
    for control in controls:
        said = "found out, as it must be" if control["failed"] else "not found out"
        parts += [
            "<h2>Negative control</h2>",
            f"<p>A wrong engine, audited in the same way: {_text(control['name'])}. It was <b>{said}</b>.</p>",
            _evidence(control["evidence"], judged=False) if len(control["evidence"]) <= 40 else "",
        ]
    return parts


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_value(value)}</td></tr>" for name, value in facts.items())
    return f'<div class="scroll"><table>{rows}</table></div>'


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return "<br>".join(f"{_text(name)}: {_value(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "<br>".join(map(_value, value)) if any(map(_is_nested, value)) else _text(", ".join(map(str, value)))
    if isinstance(value, str) and len(value) == 64:
        return f"<code>{_text(value)}</code>"
    return _text("none" if value is None else f"{value:,}" if type(value) is int else value)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list) or (isinstance(value, str) and "," in value)


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in items)}</ul>"


def _evidence(pieces: Sequence[Mapping[str, Any]], *, judged: bool) -> str:
    names = '<th>looked at</th><th class="how">how</th><th class="n">observations</th><th class="n">p-value</th>'
    rows = "".join(_row(one, is_bad=judged and one["rejected"]) for one in pieces)
    return f'<div class="scroll"><table><tr>{names}<th></th></tr>{rows}</table></div>'


def _row(piece: Mapping[str, Any], *, is_bad: bool) -> str:
    p_value = piece["p_value"]
    shown = "0" if p_value == 0 else "1" if p_value >= 0.9995 else f"{p_value:.2g}"
    name = _text(piece["name"]) + "".join(
        f'<br><span class="bad">{_text(example)}</span>' for example in piece.get("examples", ())
    )
    return (
        f'<tr><td>{name}</td><td class="how dim">{_text(_KINDS[piece["kind"]])}</td><td class="n">{_num(piece):,}</td>'
        f'<td class="n{" bad" if is_bad else ""}">{shown}</td><td>{_picture(piece)}</td></tr>'
    )


def _num(piece: Mapping[str, Any]) -> int:
    kind = piece["kind"]
    if kind == "equality":
        return int(piece["cases"])
    if kind == "fit":
        return sum(sum(group["counts"]) for group in piece["groups"])
    if kind == "homogeneity":
        return sum(sum(group["first"]) + sum(group["second"]) for group in piece["groups"])
    if kind == "rate":
        return int(piece["num"])
    return sum(piece["checkpoints"][-1]) if piece["checkpoints"] else 0


def _picture(piece: Mapping[str, Any]) -> str:
    """Return what a piece of evidence looks like: bars of a fit, the numbers of a rate."""
    if piece["kind"] == "equality":
        if not piece["cases"]:
            return "nothing was looked at"
        return "no exception" if not piece["failures"] else f"{piece['failures']:,} exceptions"
    if piece["kind"] == "rate" and piece["num"]:
        return f"{piece['observed'] / piece['num']:.1%}, expected {piece['expected'] / piece['num']:.1%}"
    if piece["kind"] != "fit":
        return ""
    scores = [
        (count - mean) / sqrt(mean * (1 - prob))
        for group in piece["groups"]
        for count, prob, mean in (
            (count, prob, prob * sum(group["counts"]))
            for count, prob in zip(group["counts"], group["probs"], strict=True)
        )
        if mean > 0 and prob < 1  # a cell of its own cannot differ
    ][:120]
    return _bars(scores) if scores else ""


def _bars(scores: Sequence[float]) -> str:
    width, middle = 3, 18
    bars = "".join(
        f'<rect x="{index * width}" y="{middle - max(height, 0):.1f}" width="{width - 1}" height="{abs(height):.1f}" '
        f'fill="{"#b3261e" if abs(score) > 4 else "#5b7fa6"}"/>'
        for index, score in enumerate(scores)
        for height in (max(-18.0, min(18.0, score * 4)),)
    )
    lines = "".join(
        f'<line x1="0" x2="{len(scores) * width}" y1="{y}" y2="{y}" stroke="#999" stroke-width=".5"/>'
        for y in (middle - 12, middle, middle + 12)
    )
    size = (
        f'width="{len(scores) * width}" height="36" viewBox="0 0 {len(scores) * width} 36" preserveAspectRatio="none"'
    )
    return f'<svg {size} role="img" aria-label="differences from the law">{lines}{bars}</svg>'
