"""What an unfinished audit has counted so far, in a file from which it can go on.

The file is written whole or not at all, and read like anything from a stranger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from outrider.audit.evidence import Equality, evidence_from_json, expect
from outrider.audit.reading import read_document
from outrider.audit.sequential import NUM_BINS
from outrider.audit.statistics import Cells
from outrider.audit.tally import Bins, Tally
from outrider.errors import UsageError

_SCHEMA = 1


@dataclass(slots=True)
class Progress:
    """How far an audit has got.

    Attributes:
        equalities: Of texts, once they have been compared.
        tallies: Of the prefixes that are done, in order.
        controls: The same for the wrong variant; it is dropped once it has been found out.
        num_rows, num_different: Rows of logits held against those of plain passes, and those that differed.
    """

    equalities: list[Equality] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    controls: list[Tally] = field(default_factory=list)
    num_rows: int = 0
    num_different: int = 0


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return what tells an audit from another: its counts must never be added to another's."""
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def save(path: Path, progress: Progress, audit: str) -> None:
    """Write how far an audit has got.

    Raises:
        UsageError: The file cannot be written.
    """
    document = {
        "outrider_audit_state": _SCHEMA,
        "audit": audit,
        "equalities": [{"kind": one.kind, "name": one.name, **one.data()} for one in progress.equalities],
        "tallies": [asdict(tally) for tally in progress.tallies],
        "controls": [asdict(tally) for tally in progress.controls],
        "num_rows": progress.num_rows,
        "num_different": progress.num_different,
    }
    write_whole(path, json.dumps(document))


def load(path: Path, audit: str) -> Progress:
    """Read how far an audit has got; not at all, if there is no file.

    Raises:
        UsageError: The file is of another audit, or is none.
    """
    if not path.exists():
        return Progress()
    document = read_document(path, "state of an audit")
    if document.get("outrider_audit_state") != _SCHEMA or document.get("audit") != audit:
        raise UsageError(
            f"{path} is the state of another audit (its models, settings, seed or versions differ); name another "
            "file, or remove it"
        )
    try:
        return Progress(
            equalities=[_equality(one) for one in expect(document.get("equalities"), list, "equalities")],
            tallies=[_tally(one, "tallies") for one in expect(document.get("tallies"), list, "tallies")],
            controls=[_tally(one, "controls") for one in expect(document.get("controls"), list, "controls")],
            num_rows=expect(document.get("num_rows"), int, "num_rows"),
            num_different=expect(document.get("num_different"), int, "num_different"),
        )
    except UsageError as error:
        raise UsageError(f"{path} is no state of an audit: {error}; remove it") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file so that whoever reads it finds the whole of it, or what was there before.

    Raises:
        UsageError: It cannot be written.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_text(text)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error.strerror or error}; name another file") from error


def _equality(document: object) -> Equality:
    evidence = evidence_from_json(document, "equalities")
    if not isinstance(evidence, Equality):
        raise UsageError(f"equalities holds {evidence.kind}")
    return evidence


def _tally(document: object, where: str) -> Tally:
    fields = expect(document, dict, where)
    return Tally(
        first=_cells(fields.get("first"), f"{where}.first"),
        joint=_cells(fields.get("joint"), f"{where}.joint"),
        directed=_bins(fields.get("directed"), f"{where}.directed"),
        every=_bins(fields.get("every"), f"{where}.every"),
        strata={
            name: _bins(bins, f"{where}.strata")
            for name, bins in expect(fields.get("strata"), dict, f"{where}.strata").items()
        },
        rates={
            name: _rate(rate, f"{where}.rates")
            for name, rate in expect(fields.get("rates"), dict, f"{where}.rates").items()
        },
        drafted={
            _depth(depth, f"{where}.drafted"): expect(num, int, f"{where}.drafted")
            for depth, num in expect(fields.get("drafted"), dict, f"{where}.drafted").items()
        },
        tokens=expect(fields.get("tokens"), int, f"{where}.tokens"),
        impossible=expect(fields.get("impossible"), int, f"{where}.impossible"),
        at_checkpoints=[
            (_bins(one, where), _bins(other, where))
            for one, other in (_pair(pair, where) for pair in expect(fields.get("at_checkpoints"), list, where))
        ],
    )


def _cells(value: object, where: str) -> tuple[list[int], list[float]]:
    counts, probs = (expect(one, list, where) for one in _pair(value, where))
    whole = [expect(count, int, where) for count in counts]
    numbers = [float(expect(prob, float, where)) for prob in probs]
    Cells(tuple(whole), tuple(numbers))  # says what is wrong
    return whole, numbers


def _bins(value: object, where: str) -> Bins:
    bins = [expect(count, int, where) for count in expect(value, list, where)]
    if len(bins) != NUM_BINS:
        raise UsageError(f"{where} has {len(bins)} bins; there are {NUM_BINS}")
    return bins


def _rate(value: object, where: str) -> tuple[int, int, float]:
    num, observed, expected = expect(value, list, where) if isinstance(value, list) and len(value) == 3 else (0, 0, "")
    return expect(num, int, where), expect(observed, int, where), float(expect(expected, float, where))


def _depth(name: str, where: str) -> str:
    if not (name.isascii() and name.isdigit() and len(name) < 6):
        raise UsageError(f"{where} holds {name[:40]!r}; it must be a number")
    return name


def _pair(value: object, where: str) -> tuple[Any, Any]:
    if not isinstance(value, list) or len(value) != 2:
        raise UsageError(f"{where} holds {repr(value)[:40]}; it must be a pair")
    return value[0], value[1]
