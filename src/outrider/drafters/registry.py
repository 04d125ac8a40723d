"""Drafters by name: ours, and those that installed packages offer under the entry-point group ``outrider.drafters``.

An entry point names a class or function that returns a :class:`~outrider.drafters.base.Drafter` when called without
arguments. Nothing is imported before it is asked for. A built-in name cannot be taken over by a package.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from outrider.drafters.base import Drafter
from outrider.errors import UsageError

GROUP = "outrider.drafters"
BUILT_IN = {"ngram": "outrider.drafters.ngram:NgramDrafter"}


def drafters() -> dict[str, EntryPoint]:
    """Return every known drafter by name, built-in ones first."""
    built_in = {name: EntryPoint(name, value, GROUP) for name, value in BUILT_IN.items()}
    return built_in | {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in built_in}


def create_drafter(name: str) -> Drafter:
    """Return a new drafter.

    Raises:
        UsageError: No drafter has this name; the message lists near matches and all names.
    """
    known = drafters()
    if name not in known:
        near = "".join(f"; did you mean {match!r}?" for match in get_close_matches(name, known, n=1))
        raise UsageError(f"no drafter is named {name!r}{near} (known: {', '.join(known)})")
    drafter: Drafter = known[name].load()()
    return drafter
