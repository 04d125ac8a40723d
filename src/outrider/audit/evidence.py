"""Pieces of evidence: raw counts, and what they come to. Each comes to one p-value, recomputed from the counts alone.

A certificate is a list of these and what follows from it, so that whoever reads one can do the sums again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar, Protocol

from outrider.audit.sequential import NUM_BINS, anytime_p_value
from outrider.audit.statistics import Cells, Finding, g_test, rate_test, two_sample_g_test
from outrider.errors import UsageError

MAX_CELLS = 100_000


class Evidence(Protocol):
    """Something that was looked at, and what it says about the claim.

    Attributes:
        kind: Which of the kinds below it is, in a certificate.
        name: What was looked at, in a few words; no two pieces of a certificate share it.
    """

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """See above."""

    @property
    def num(self) -> int:
        """How many observations or cases it rests on."""

    def finding(self) -> Finding:
        """Return the test's result; its p-value is at least as large as it should be."""

    def data(self) -> dict[str, Any]:
        """Return the raw counts, as JSON holds them."""


@dataclass(frozen=True, slots=True)
class Equality:
    """Cases that must all be the same as in plain decoding.

    Attributes:
        examples: Some that are not, in words.
    """

    kind: ClassVar[str] = "equality"
    name: str
    cases: int
    failures: int
    examples: tuple[str, ...] = ()

    @property
    def num(self) -> int:
        """See :class:`Evidence`."""
        return self.cases

    def finding(self) -> Finding:
        """One failure is one too many."""
        return Finding(float(self.failures), 0, 0.0 if self.failures else 1.0)

    def data(self) -> dict[str, Any]:
        """See :class:`Evidence`."""
        return {"cases": self.cases, "failures": self.failures, "examples": list(self.examples)}


@dataclass(frozen=True, slots=True)
class Fit:
    """Counts that must fit a known law, in one group or in many."""

    kind: ClassVar[str] = "fit"
    name: str
    groups: tuple[Cells, ...]

    @property
    def num(self) -> int:
        """See :class:`Evidence`."""
        return sum(cells.num for cells in self.groups)

    def finding(self) -> Finding:
        """A G-test, summed over the groups."""
        return g_test(self.groups)

    def data(self) -> dict[str, Any]:
        """See :class:`Evidence`."""
        return {"groups": [{"counts": list(cells.counts), "probs": list(cells.probs)} for cells in self.groups]}


@dataclass(frozen=True, slots=True)
class Homogeneity:
    """Two samples, group by group, that must have one law."""

    kind: ClassVar[str] = "homogeneity"
    name: str
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]

    @property
    def num(self) -> int:
        """See :class:`Evidence`."""
        return sum(sum(one) + sum(other) for one, other in self.groups)

    def finding(self) -> Finding:
        """A two-sample G-test, summed over the groups."""
        return two_sample_g_test(self.groups)

    def data(self) -> dict[str, Any]:
        """See :class:`Evidence`."""
        return {"groups": [{"first": list(one), "second": list(other)} for one, other in self.groups]}


@dataclass(frozen=True, slots=True)
class Rate:
    """How many decisions came out yes, beside the sum of their chances."""

    kind: ClassVar[str] = "rate"
    name: str
    num: int
    observed: int
    expected: float

    def finding(self) -> Finding:
        """Hoeffding's bound on sums of yes-or-no decisions."""
        return rate_test(self.num, self.observed, self.expected)

    def data(self) -> dict[str, Any]:
        """See :class:`Evidence`."""
        return {"num": self.num, "observed": self.observed, "expected": self.expected}


@dataclass(frozen=True, slots=True)
class Course:
    """What had fallen into each bin whenever the sequential test was looked at.

    Attributes:
        checkpoints: Counts since the start, ``NUM_BINS`` each, in order of time.
    """

    kind: ClassVar[str] = "course"
    name: str
    checkpoints: tuple[tuple[int, ...], ...]

    @property
    def num(self) -> int:
        """See :class:`Evidence`."""
        return sum(self.checkpoints[-1]) if self.checkpoints else 0

    def finding(self) -> Finding:
        """Ville's inequality on the bettors' wealth."""
        p_value = anytime_p_value(self.checkpoints)
        return Finding(1 / p_value if p_value > 0 else float("inf"), 0, p_value)

    def data(self) -> dict[str, Any]:
        """See :class:`Evidence`."""
        return {"checkpoints": [list(counts) for counts in self.checkpoints]}


def weight(evidence: Evidence) -> tuple[int, int]:
    """Return how many observations of a known law a comparison is worth, and its degrees of freedom; (0, 0) of others.

    Two samples of ``m`` and ``n`` are worth ``m * n / (m + n)``: each is as uncertain as it is small. A group that is
    all in one cell shows nothing, and is not counted.
    """
    if isinstance(evidence, Fit):
        telling = [cells for cells in evidence.groups if g_test([cells]).df]
        return sum(cells.num for cells in telling), evidence.finding().df
    if isinstance(evidence, Homogeneity):
        tables = [group for group in evidence.groups if two_sample_g_test([group]).df]
        sizes = [(sum(one), sum(other)) for one, other in tables]
        return int(sum(m * n / (m + n) for m, n in sizes)), evidence.finding().df
    return 0, 0


def evidence_from_json(document: object, where: str) -> Evidence:
    """Read a piece of evidence from a document of unknown origin; only its name and its raw counts are looked at.

    Raises:
        UsageError: It is not what it should be; the message says where.
    """
    fields = expect(document, dict, where)
    kind, name = expect(fields.get("kind"), str, f"{where}.kind"), expect(fields.get("name"), str, f"{where}.name")
    if kind not in _READERS:
        raise UsageError(f"{where}.kind is {kind[:40]!r}; it must be one of {', '.join(_READERS)}")
    return _READERS[kind](name, fields, where)


def expect(value: Any, kind: type, where: str) -> Any:
    """Return a value that must be of a JSON type; ``int`` means a whole number of at least 0, ``float`` any number.

    Raises:
        UsageError: It is not.
    """
    is_right = isinstance(value, int | float if kind is float else kind) and not (
        isinstance(value, bool) and kind is not bool
    )
    if is_right and kind is int:
        is_right = 0 <= value < 2**53
    if is_right and kind is float:
        is_right = abs(value) < 2**53 and isfinite(value)
    if not is_right:
        wanted = {int: "a whole number of at least 0", float: "a finite number", str: "text", list: "a list"}
        raise UsageError(f"{where} is {repr(value)[:60]}; it must be {wanted.get(kind, 'an object')}")
    return value


def _equality(name: str, fields: dict[str, Any], where: str) -> Equality:
    cases, failures = (expect(fields.get(key), int, f"{where}.{key}") for key in ("cases", "failures"))
    examples = tuple(expect(one, str, f"{where}.examples") for one in expect(fields.get("examples"), list, where))
    if failures > cases:
        raise UsageError(f"{where}.failures is {failures}; there are {cases} cases")
    return Equality(name, cases, failures, examples)


def _fit(name: str, fields: dict[str, Any], where: str) -> Fit:
    groups = []
    for number, group in enumerate(_limited(fields.get("groups"), f"{where}.groups")):
        place = f"{where}.groups[{number}]"
        counts = _whole(expect(group, dict, place).get("counts"), f"{place}.counts")
        probs = [expect(prob, float, f"{place}.probs") for prob in _limited(group.get("probs"), f"{place}.probs")]
        try:
            groups.append(Cells(counts, tuple(map(float, probs))))
        except UsageError as error:
            raise UsageError(f"{place}: {error}") from None
    return Fit(name, tuple(groups))


def _homogeneity(name: str, fields: dict[str, Any], where: str) -> Homogeneity:
    groups = []
    for number, group in enumerate(_limited(fields.get("groups"), f"{where}.groups")):
        place = f"{where}.groups[{number}]"
        one, other = (_whole(expect(group, dict, place).get(key), f"{place}.{key}") for key in ("first", "second"))
        if len(one) != len(other):
            raise UsageError(f"{place} has samples of {len(one)} and {len(other)} cells; they must have the same")
        groups.append((one, other))
    return Homogeneity(name, tuple(groups))


def _rate(name: str, fields: dict[str, Any], where: str) -> Rate:
    num, observed = (expect(fields.get(key), int, f"{where}.{key}") for key in ("num", "observed"))
    expected = float(expect(fields.get("expected"), float, f"{where}.expected"))
    if observed > num or not 0 <= expected <= num + 1e-6:
        raise UsageError(f"{where}: {observed} observed and {expected} expected of {num}; neither can be")
    return Rate(name, num, observed, expected)


def _course(name: str, fields: dict[str, Any], where: str) -> Course:
    checkpoints = []
    before = (0,) * NUM_BINS
    for number, counts in enumerate(_limited(fields.get("checkpoints"), f"{where}.checkpoints")):
        after = _whole(counts, f"{where}.checkpoints[{number}]")
        if len(after) != NUM_BINS or any(now < then for now, then in zip(after, before, strict=True)):
            raise UsageError(f"{where}.checkpoints[{number}] must hold {NUM_BINS} counts, none less than before")
        checkpoints.append(after)
        before = after
    return Course(name, tuple(checkpoints))


def _limited(value: object, where: str) -> list[Any]:
    values: list[Any] = expect(value, list, where)
    if len(values) > MAX_CELLS:
        raise UsageError(f"{where} has {len(values)} entries; at most {MAX_CELLS} are read")
    return values


def _whole(value: object, where: str) -> tuple[int, ...]:
    return tuple(expect(one, int, where) for one in _limited(value, where))


_READERS: dict[str, Callable[[str, dict[str, Any], str], Evidence]] = {
    Equality.kind: _equality,
    Fit.kind: _fit,
    Homogeneity.kind: _homogeneity,
    Rate.kind: _rate,
    Course.kind: _course,
}
