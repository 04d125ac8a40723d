"""The exact audit: passes as it stands, and fails with any rule that is wrong."""

import pytest

from outrider.audit import exact
from outrider.audit.certificate import check
from outrider.audit.toy_engine import PARAMETERS
from outrider.audit.wrong_variants import MUTANTS, RULES


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(exact, "PAIRS", {name: exact.PAIRS[name] for name in ("unlike", "four tokens")})
    monkeypatch.setattr(exact, "PARAMETERS", {name: PARAMETERS[name] for name in ("top_p 0.7", "presence_penalty 0.8")})
    names = ["recovers from the target's law", "takes the bonus from the row before"]
    monkeypatch.setattr(exact, "MUTANTS", {name: MUTANTS[name] for name in names})


def run():
    return exact.audit_exact(command="outrider audit exact", now="now")


def test_every_rule_is_proven_and_every_wrong_variant_found_out(few):
    certificate = run()
    assert certificate.judge().verdict == "pass"
    assert all(control.has_failed(certificate.claim.level) for control in certificate.controls)
    assert check(certificate.to_json()) == []


def test_a_wrong_rule_fails(few, monkeypatch):
    monkeypatch.setitem(exact._RULES, "token", RULES["recovers from the row after"])
    judgement = run().judge()
    assert judgement.verdict == "fail"
    assert "rule token" in judgement.reason


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
