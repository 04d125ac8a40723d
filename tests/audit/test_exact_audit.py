"""The exact audit: passes as it stands, and fails with any rule that is wrong."""

from html import escape

import pytest

from outrider.audit import exact
from outrider.audit.certificate import check
from outrider.audit.page import page
from outrider.audit.toy_engine import PARAMETERS
from outrider.audit.wrong_variants import MUTANTS, RULES
from outrider.engine import rules


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(exact, "PAIRS", {name: exact.PAIRS[name] for name in ("unlike", "four tokens")})
    monkeypatch.setattr(exact, "PARAMETERS", {name: PARAMETERS[name] for name in ("top_p 0.7", "presence_penalty 0.8")})
    names = ["recovers from the target's law", "takes the bonus from the row before"]
    monkeypatch.setattr(exact, "MUTANTS", {name: MUTANTS[name] for name in names})


class RowBefore:
    """Laws of which each, but the first, is taken for the next one."""

    def __init__(self, laws):
        self._laws, self.shape, self.dtype = laws, laws.shape, laws.dtype

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, row):
        return self._laws[max(row - 1, 0)]


def run():
    return exact.audit_exact(command="outrider audit exact", now="now")


def test_every_rule_is_proven_and_every_wrong_variant_found_out(few):
    certificate = run()
    assert certificate.judge().verdict == "pass"
    assert all(control.has_failed(certificate.claim.level) for control in certificate.controls)
    document = certificate.to_json()
    assert check(document) == []
    enumerated = certificate.settings["enumerated"]
    assert {one.name: one.cases for one in certificate.evidence} == {name: len(of) for name, of in enumerated.items()}
    shown = page(document)
    for draft in ("a model's chains", "a model's trees", "chosen tokens"):
        for rule in ("answers by token", "seeded answers by coupled, bit for bit"):
            assert escape(f"{rule}, of {draft}: top_p 0.7, presence_penalty 0.8") in shown


def test_a_wrong_rule_fails(few, monkeypatch):
    monkeypatch.setitem(exact._RULES, "token", RULES["recovers from the row after"])
    judgement = run().judge()
    assert judgement.verdict == "fail"
    assert "rule token" in judgement.reason


@pytest.mark.parametrize(
    ("verifier", "kind", "rows"),
    [
        ("token", "a model's chains", {"answers by token"}),
        ("block", "a model's chains", {"answers by block"}),
        ("verify_tree", "a model's trees", {"answers by token", "seeded answers by coupled, bit for bit"}),
        ("point_mass", "chosen tokens", {"answers by token"}),
    ],
)
def test_an_engine_that_looks_at_the_row_before_fails_with_that_kind_of_draft(monkeypatch, verifier, kind, rows):
    monkeypatch.setattr(exact, "PARAMETERS", {"temperature 1": PARAMETERS["temperature 1"]})
    right = rules._VERIFIERS.get(verifier, rules.verify_tree)

    def wrong(draft, laws, coins):
        return right(draft, RowBefore(laws), coins)

    if verifier == "verify_tree":
        monkeypatch.setattr(rules, verifier, wrong)
    else:
        monkeypatch.setitem(rules._VERIFIERS, verifier, wrong)
    failed = {one.name for one in exact._prove_answers() if one.failures}
    assert failed == {f"{row}, of {kind}" for row in rows}


def test_a_control_that_is_right_makes_it_void(few, monkeypatch):
    right = exact.MUTANTS | {
        "right": lambda target, draft, count: exact.speculative_round(
            target, exact.dense_drafter(draft, count), exact.verify_token
        )
    }
    monkeypatch.setattr(exact, "MUTANTS", right)
    judgement = run().judge()
    assert judgement.verdict == "void"
    assert judgement.reason.endswith("right")
