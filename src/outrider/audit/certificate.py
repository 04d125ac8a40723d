"""The certificate: what was audited and how, the evidence with its raw counts, and what follows from it.

A document of JSON. Everything in it from the statistics on is a function of the counts before, and :func:`check` does
the sums again. Its digest tells a slip or a careless edit; it is no signature: who wants to lie can write a whole new
certificate. What cannot be faked is running the command again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from math import ceil, isclose, isfinite
from typing import Any, Literal, get_args

from outrider.audit.evidence import Evidence, evidence_from_json, expect, weight
from outrider.audit.statistics import holm, least_total_variation, needed_observations
from outrider.errors import UsageError

SCHEMA = 1
Kind = Literal["exact", "pair", "endpoint"]
Verdict = Literal["pass", "fail", "inconclusive", "void"]
# Without a wrong variant that was found, these say nothing.
_NEED_CONTROLS = {"exact", "pair"}
# Of a level, a total variation and a chance in what is read: no sum is done with numbers that may vanish in it.
_LEAST_CLAIM = 1e-9
# What to raise for more observations, by the setting that says how many there were.
_MORE = {"draws": "--draws", "budget": "--budget", "num_draws": "num_draws"}


@dataclass(frozen=True, slots=True)
class Claim:
    """What an audit sets out to show.

    Attributes:
        level: The chance that a right engine fails, at most, over all evidence.
        total_variation: Laws that differ by this much would have been told apart ...
        power: ... with this chance at least.
        shown_by: The name of the evidence that the last two are about; None of an exact audit, which has no noise.
    """

    level: float = 1e-4
    total_variation: float = 0.02
    power: float = 0.9
    shown_by: str | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """A wrong variant that was audited in the same way, and must fail."""

    name: str
    evidence: tuple[Evidence, ...]

    def has_failed(self, level: float) -> bool:
        """Return whether its evidence speaks against it."""
        return any(_rejected(self.evidence, level))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What follows from the evidence.

    Attributes:
        reason: One sentence for people.
        rejected: For each piece of evidence whether it speaks against the claim.
        found_from: The smallest total variation that would have been found with the claim's power; None if that is
            not what the evidence is about.
    """

    verdict: Verdict
    reason: str
    rejected: tuple[bool, ...]
    found_from: float | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """One audit.

    Attributes:
        created: When, in UTC, as ISO 8601 writes it.
        command: That runs it again.
        subject: What was audited: models with their hashes, drafters, servers. Names, never paths.
        settings: Sampling parameters, budget and seeds.
        versions: Of the programs and libraries, and the processor's instruction set.
        notes: In words, what the audit did not look at.
    """

    kind: Kind
    created: str
    command: str
    subject: Mapping[str, Any]
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    claim: Claim
    evidence: tuple[Evidence, ...]
    controls: tuple[Control, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def judge(self) -> Judgement:
        """Return what follows from the evidence."""
        rejected = tuple(_rejected(self.evidence, self.claim.level))
        shown = [one for one in self.evidence if one.name == self.claim.shown_by]
        found_from = None
        if self.claim.shown_by is not None:
            num, df = weight(shown[0]) if shown else (0, 0)
            level = self.claim.level / len(self.evidence) if self.evidence else self.claim.level
            found_from = least_total_variation(num, df, level, self.claim.power)
        verdict, reason = self._verdict(rejected, found_from)
        return Judgement(verdict, reason, rejected, found_from)

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        judgement = self.judge()
        document = {
            "outrider_certificate": SCHEMA,
            "kind": self.kind,
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "created": self.created,
            "command": self.command,
            "subject": dict(self.subject),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "claim": asdict(self.claim),
            "found_from_total_variation": judgement.found_from,
            "evidence": [
                {**_shown(one), "rejected": is_rejected}
                for one, is_rejected in zip(self.evidence, judgement.rejected, strict=True)
            ],
            "controls": [
                {
                    "name": control.name,
                    "failed": control.has_failed(self.claim.level),
                    "evidence": [_shown(one) for one in control.evidence],
                }
                for control in self.controls
            ],
            "notes": list(self.notes),
        }
        return {**document, "digest": digest(document)}

    def _verdict(self, rejected: Sequence[bool], found_from: float | None) -> tuple[Verdict, str]:
        wrong = [one.name for one, is_rejected in zip(self.evidence, rejected, strict=True) if is_rejected]
        if wrong:
            return "fail", f"what was emitted is not what the target would have said: {'; '.join(wrong)}"
        missed = [control.name for control in self.controls if not control.has_failed(self.claim.level)]
        if missed:
            return (
                "void",
                f"a wrong variant was not found out, so passing says nothing: {'; '.join(missed)}{self._more()}",
            )
        if self.kind in _NEED_CONTROLS and not self.controls:
            return "void", "no wrong variant was tried, so passing says nothing"
        empty = [self._noted(one.name) for one in self.evidence if one.num == 0]
        if empty or not self.evidence:
            return "inconclusive", f"nothing was looked at: {'; '.join(empty) or 'there is no evidence'}"
        if found_from is not None and found_from > self.claim.total_variation:
            return "inconclusive", self._needed(found_from)
        return "pass", self._passed(found_from)

    def _needed(self, found_from: float) -> str:
        name = self.claim.shown_by or ""
        shown = next((one for one in self.evidence if one.name == name), None)
        if shown is None:
            return f"what the verdict rests on was not looked at: {self._noted(name)}"
        num, df = weight(shown)
        if num == 0:
            return (
                f"{name}: at none of the places can two outcomes be counted apart: too little was drawn"
                f"{self._more()}; or the target is all but certain there: give prompts that leave more open"
            )
        level = self.claim.level / len(self.evidence)
        needed = needed_observations(self.claim.total_variation, df, level, self.claim.power)
        return (
            f"only a total variation of {found_from:.3f} or more would have been found with chance "
            f"{self.claim.power:g}, not {self.claim.total_variation:g}; {needed:,} observations are needed, and there "
            f"are {num:,}{self._more(needed / num)}"
        )

    def _more(self, times: float | None = None) -> str:
        """Return the advice to look at more, if there is a setting for it, and at so many times as much, if known."""
        for name, flag in _MORE.items():
            if name in self.settings:
                asked = self.settings[name]
                known = times is not None and isinstance(asked, int)
                return f"; raise {flag}" + (f" to about {_rounded_up(asked * times)}" if known else "")
        return ""

    def _noted(self, name: str) -> str:
        """Return the note on a piece of evidence, which begins with its name; without one, the name."""
        return next((note for note in self.notes if note.startswith(f"{name}: ")), name)

    def _passed(self, found_from: float | None) -> str:
        if found_from is None:
            return "every case is exactly what the target would have said"
        # Of a server every unit of an answer is an observation: a fault at one place of many is averaged away.
        where = "of what comes next, on average over the places" if self.kind == "endpoint" else "in the cells"
        return (
            "no difference from what the target would have said was found; a total variation of "
            f"{found_from:.3f} {where} that were looked at would have been found with chance {self.claim.power:g}"
        )


def digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a document without its own digest, in one way of writing it."""
    bare = {name: value for name, value in document.items() if name != "digest"}
    return sha256(json.dumps(bare, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()).hexdigest()


def certificate_from_json(document: Mapping[str, Any]) -> Certificate:
    """Read a certificate from a document of unknown origin: what was audited, and the raw counts.

    Raises:
        UsageError: It is not what it should be; the message says where.
    """
    version = document.get("outrider_certificate")
    if version != SCHEMA:
        raise UsageError(f"outrider_certificate is {version!r} and not {SCHEMA}: it is no certificate, or a later one")
    known = {one.name for one in fields(Certificate)} | _DERIVED
    unknown = sorted(set(document) - known)
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no field of a certificate")
    kind = expect(document.get("kind"), str, "kind")
    if kind not in get_args(Kind):
        raise UsageError(f"kind is {kind[:40]!r}; it must be one of {', '.join(get_args(Kind))}")
    evidence = _pieces(document.get("evidence"), "evidence")
    controls = tuple(
        Control(
            expect(expect(one, dict, f"controls[{number}]").get("name"), str, f"controls[{number}].name"),
            _pieces(one.get("evidence"), f"controls[{number}].evidence"),
        )
        for number, one in enumerate(expect(document.get("controls"), list, "controls"))
    )
    return Certificate(
        kind=kind,
        created=expect(document.get("created"), str, "created"),
        command=expect(document.get("command"), str, "command"),
        subject=expect(document.get("subject"), dict, "subject"),
        settings=expect(document.get("settings"), dict, "settings"),
        versions=expect(document.get("versions"), dict, "versions"),
        claim=_claim(document.get("claim")),
        evidence=evidence,
        controls=controls,
        notes=tuple(expect(note, str, "notes") for note in expect(document.get("notes"), list, "notes")),
    )


def check(document: Mapping[str, Any]) -> list[str]:
    """Return what in a certificate does not follow from its own counts: nothing, if its arithmetic holds.

    Raises:
        UsageError: It is no certificate.
    """
    found = dict(document)
    wanted = certificate_from_json(found).to_json()
    wanted["digest"] = digest(found)  # whose statistics another library may have rounded otherwise
    return _differences("", wanted, found)


_DERIVED = {"outrider_certificate", "verdict", "reason", "found_from_total_variation", "digest"}


def _shown(evidence: Evidence) -> dict[str, Any]:
    finding = evidence.finding()
    return {
        "kind": evidence.kind,
        "name": evidence.name,
        **evidence.data(),
        "statistic": finding.statistic if isfinite(finding.statistic) else None,
        "df": finding.df,
        "p_value": finding.p_value,
    }


def _rounded_up(number: float) -> int:
    """Return a number with all but its first two digits rounded up."""
    unit: int = 10 ** max(0, len(str(int(number))) - 2)
    return ceil(number / unit) * unit


def _rejected(evidence: Sequence[Evidence], level: float) -> list[bool]:
    return holm([one.finding().p_value for one in evidence], level)


def _pieces(value: object, where: str) -> tuple[Evidence, ...]:
    pieces = tuple(
        evidence_from_json(one, f"{where}[{number}]") for number, one in enumerate(expect(value, list, where))
    )
    names = [one.name for one in pieces]
    if len(set(names)) != len(names):
        raise UsageError(f"{where} has two pieces of one name; each must have its own")
    return pieces


def _claim(value: object) -> Claim:
    given = expect(value, dict, "claim")
    if set(given) != {one.name for one in fields(Claim)}:
        raise UsageError(f"claim has the fields {sorted(given)}; it must have {[one.name for one in fields(Claim)]}")
    numbers = {name: expect(given[name], float, f"claim.{name}") for name in ("level", "total_variation", "power")}
    for name, number in numbers.items():
        if not _LEAST_CLAIM <= number <= 1 - _LEAST_CLAIM:
            raise UsageError(f"claim.{name} is {number}; it must be between {_LEAST_CLAIM} and {1 - _LEAST_CLAIM}")
    shown_by = given["shown_by"]
    return Claim(**numbers, shown_by=None if shown_by is None else expect(shown_by, str, "claim.shown_by"))


def _differences(where: str, wanted: object, found: object) -> list[str]:
    """Return where a document differs from what it should be; numbers may differ by rounding."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        problems = [f"{where}{name} is not there" for name in sorted(set(wanted) - set(found))]
        problems += [f"{where}{name} should not be there" for name in sorted(set(found) - set(wanted))]
        for name in wanted:
            if name in found:
                problems += _differences(f"{where}{name}.", wanted[name], found[name])
        return problems
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            problem
            for number, pair in enumerate(zip(wanted, found, strict=True))
            for problem in _differences(f"{where}{number}.", *pair)
        ]
    is_number = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (wanted, found))
    if is_number:
        same = isclose(wanted, found, rel_tol=1e-6, abs_tol=1e-300)  # type: ignore[arg-type]
    else:
        same = type(wanted) is type(found) and wanted == found
    return [] if same else [f"{where.rstrip('.')} is {repr(found)[:60]} and should be {repr(wanted)[:60]}"]
