"""Certificates: what follows from the evidence, and that nothing else passes for one."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest

from outrider.audit.certificate import Certificate, Claim, Control, certificate_from_json, check, digest
from outrider.audit.evidence import Course, Equality, Fit, Homogeneity, Rate, weight
from outrider.audit.reading import parse_document, read_document
from outrider.audit.sequential import NUM_BINS
from outrider.audit.statistics import Cells
from outrider.errors import UsageError

GOOD = Fit("first token", (Cells((50_300, 49_700), (0.5, 0.5)),))
WRONG = Fit("first token", (Cells((52_000, 48_000), (0.5, 0.5)),))
EVIDENCE = (
    Equality("greedy", 12, 0),
    GOOD,
    Homogeneity("with and without", (((500, 400), (510, 390)),)),
    Rate("accepted", 1000, 850, 851.5),
    Course("sequential", ((10,) * NUM_BINS, (20,) * NUM_BINS)),
)


CONTROLS = (Control("wrong", (WRONG,)),)


def certificate(evidence=EVIDENCE, controls=CONTROLS, **changes):
    made = Certificate(
        kind="pair",
        created="2026-11-30T00:00:00Z",
        command="outrider audit pair",
        subject={"target": "toy"},
        settings={"seed": 0},
        versions={"outrider": "0"},
        claim=Claim(shown_by="first token"),
        evidence=evidence,
        controls=controls,
    )
    return replace(made, **changes)


def test_verdicts():
    assert certificate().judge().verdict == "pass"
    assert certificate((*EVIDENCE[:1], WRONG)).judge().verdict == "fail"
    assert certificate((Equality("greedy", 12, 1), GOOD)).judge().verdict == "fail"
    assert certificate(controls=()).judge().verdict == "void"
    assert certificate(controls=(Control("not found", (GOOD,)),)).judge().verdict == "void"
    assert certificate(controls=(), kind="endpoint").judge().verdict == "pass"
    assert certificate((Equality("greedy", 0, 0), GOOD)).judge().verdict == "inconclusive"
    assert certificate(()).judge().verdict == "inconclusive"


def test_too_little_to_tell_is_inconclusive_and_says_what_is_needed():
    few = certificate((Fit("first token", (Cells((500, 500), (0.5, 0.5)),)),)).judge()
    assert few.verdict == "inconclusive"
    assert few.found_from == pytest.approx(0.0815, abs=0.001)
    assert "16,720" in few.reason
    assert certificate((Equality("greedy", 12, 0),)).judge().verdict == "inconclusive"


def test_reasons_name_what_would_help():
    few = (Fit("first token", (Cells((500, 500), (0.5, 0.5)),)),)
    assert certificate(few, settings={"draws": 1000}).judge().reason.endswith("; raise --draws to about 17000")
    assert certificate(few, settings={"budget": "?"}).judge().reason.endswith("; raise --budget")
    void = certificate(controls=(Control("not found", (GOOD,)),), settings={"draws": 6}).judge()
    assert void.reason.endswith("passing says nothing: not found; raise --draws")
    certain = (Fit("first token", (Cells((1000,), (1.0,)),)),)
    alone = certificate(certain, settings={"num_draws": 1000}).judge()
    assert alone.verdict == "inconclusive"
    assert "first token: at none of the places" in alone.reason
    assert "too little was drawn; raise num_draws; or the target is all but certain" in alone.reason
    left_out = certificate((Equality("greedy", 12, 0),), notes=("first token: the request was refused",)).judge()
    assert left_out.reason == "what the verdict rests on was not looked at: first token: the request was refused"
    noted = certificate((Equality("sampled", 0, 0), GOOD), notes=("sampled: too few; raise --budget",)).judge()
    assert noted.reason == "nothing was looked at: sampled: too few; raise --budget"


def test_round_trip_and_arithmetic():
    document = json.loads(json.dumps(certificate().to_json(), allow_nan=False))
    assert certificate_from_json(document) == certificate()
    assert check(document) == []


@pytest.mark.parametrize(
    "tamper",
    [
        lambda document: document.update(verdict="fail"),
        lambda document: document["evidence"][1]["groups"][0]["counts"].__setitem__(0, 50_301),
        lambda document: document["evidence"][1].update(p_value=0.5),
        lambda document: document["evidence"][0].update(statistic=True),
        lambda document: document["settings"].update(seed=1),
        lambda document: document.pop("reason"),
        lambda document: document["evidence"][0].update(extra=1),
        lambda document: document["controls"][0].update(failed=False),
        lambda document: document["claim"].update(level=0.5),
        lambda document: document.update(digest="0" * 64),
    ],
)
def test_a_tampered_certificate_is_found_out(tamper):
    document = deepcopy(certificate().to_json())
    tamper(document)
    assert check(document)


def test_a_verdict_that_does_not_follow_is_found_out_even_with_a_new_digest():
    document = certificate((*EVIDENCE[:1], WRONG)).to_json()
    document.update(verdict="pass")
    document["digest"] = digest(document)
    assert check(document) == ["verdict is 'pass' and should be 'fail'"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda d: d.update(outrider_certificate=2), "outrider_certificate is 2"),
        (lambda d: d.update(kind="other"), "kind is 'other'"),
        (lambda d: d.update(surprise=1), "'surprise' is no field"),
        (lambda d: d["evidence"][0].update(kind="odd"), r"evidence\[0\]\.kind is 'odd'"),
        (lambda d: d["evidence"][0].update(failures=13), "there are 12 cases"),
        (lambda d: d["evidence"][0].update(cases=-1), "whole number"),
        (lambda d: d["evidence"][0].update(cases=True), "whole number"),
        (lambda d: d["evidence"][1]["groups"][0].update(probs=[0.5, 0.6]), "sum to"),
        (lambda d: d["evidence"][2]["groups"][0].update(first=[1]), "must have the same"),
        (lambda d: d["evidence"][3].update(observed=2000), "neither can be"),
        (lambda d: d["evidence"][4].update(checkpoints=[[1]]), "must hold 16 counts"),
        (lambda d: d["evidence"].append(d["evidence"][0]), "two pieces of one name"),
        (lambda d: d["claim"].update(level=2), "between 1e-09 and 0.999999999"),
        (lambda d: d["claim"].update(total_variation=1e-200), "between 1e-09"),
        (lambda d: d["claim"].update(level=5e-324), "between 1e-09"),
        (lambda d: d["claim"].pop("power"), "claim has the fields"),
        (lambda d: d.update(evidence=None), "must be a list"),
    ],
)
def test_what_is_no_certificate_is_refused(break_it, message):
    document = json.loads(json.dumps(certificate().to_json()))
    break_it(document)
    with pytest.raises(UsageError, match=message):
        check(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"a": NaN}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"a": "\\ud800"',
        '{"a": 1e400}',
        '{"a": 1' + "0" * 400 + "}",
        '{"a": ' + "[" * 40 + "]" * 40 + "}",
    ],
)
def test_what_is_no_json_object_is_refused(text, tmp_path):
    with pytest.raises(UsageError, match="is no certificate"):
        parse_document(text.encode(), "it", "certificate")
    path = tmp_path / "one.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no certificate"):
        read_document(path, "certificate")
    with pytest.raises(UsageError, match="cannot be read"):
        read_document(tmp_path / "none", "certificate")


def test_groups_of_one_cell_add_nothing_to_what_would_have_been_found():
    """Or a law that is certain nearly everywhere would pass for one that was looked at."""
    certain = Fit("a", (GOOD.groups[0], Cells((10**6,), (1.0,))))
    assert weight(certain) == weight(GOOD) == (100_000, 1)
    table = ((500, 500), (490, 510))
    assert weight(Homogeneity("b", (table, ((1000, 0), (1000, 0))))) == weight(Homogeneity("b", (table,))) == (500, 1)


def test_a_pass_says_of_what_it_would_have_found_a_fault():
    assert "in the cells that were looked at" in certificate().judge().reason
    of_server = certificate(kind="endpoint").judge().reason
    assert "of what comes next, on average over the places that were looked at" in of_server
