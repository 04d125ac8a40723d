"""``outrider audit``: certificates from the command line, and exit statuses that mean what they say."""

import json
import sys

import pytest

from outrider.audit.certificate import Certificate, Claim, Control, check, digest
from outrider.audit.evidence import Equality
from outrider.cli import main
from outrider.cli.audit import command


def certificate(failures=0):
    return Certificate(
        kind="exact",
        created="now",
        command="outrider audit exact",
        subject={"engine": "toy"},
        settings={},
        versions={},
        claim=Claim(),
        evidence=(Equality("rule token", 3, failures),),
        controls=(Control("wrong", (Equality("three tokens", 1, 1),)),),
    )


@pytest.fixture
def exact_is(monkeypatch):
    """Let the proofs come out as wished, without running them: tests/audit does."""

    def become(made):
        monkeypatch.setattr("outrider.audit.exact.audit_exact", lambda **_: made)

    return become


def test_a_certificate_is_written_with_its_page_and_holds(tmp_path, exact_is, capsys):
    exact_is(certificate())
    path = tmp_path / "one.json"
    assert main(["audit", "exact", "--out", str(path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "pass: every case is exactly what the target would have said"
    assert said[1] == f"the certificate is in {path}, and its page in {path.with_suffix('.html')}"
    assert check(json.loads(path.read_text())) == []
    assert path.with_suffix(".html").read_text().startswith("<!doctype html>")
    assert main(["audit", "check", str(path)]) == 0
    assert capsys.readouterr().out.startswith("the arithmetic holds; the verdict is pass")
    assert main(["audit", "check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"holds": True, "verdict": "pass", "problems": []}


@pytest.mark.parametrize("name", ["one.html", "one.json", "one"])
def test_a_certificate_and_its_page_are_two_files_whichever_is_named(name, tmp_path, exact_is, capsys):
    exact_is(certificate())
    assert main(["audit", "exact", "--out", str(tmp_path / name)]) == 0
    written = tmp_path / (name if name != "one.html" else "one.json")
    assert check(json.loads(written.read_text())) == []
    assert (tmp_path / "one.html").read_text().startswith("<!doctype html>")
    assert f"in {written}, and its page in {tmp_path / 'one.html'}" in capsys.readouterr().out


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_audited(tmp_path, exact_is, capsys):
    exact_is(None)
    for out in (tmp_path / "none" / "one.json", tmp_path):
        assert main(["audit", "exact", "--out", str(out)]) == 2
        assert "is no file in a directory that exists" in capsys.readouterr().err
        pair = ["audit", "pair", "--target", "none.gguf", "--draft", "ngram", "--out", str(out)]
        assert main(pair) == 2
        assert "--out is" in capsys.readouterr().err
    assert main(["audit", "exact", "--out", ""]) == 2


def test_a_directory_that_only_others_may_write_in_is_refused_too(tmp_path, exact_is, capsys, monkeypatch):
    exact_is(None)
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # who runs the tests may be root
    assert main(["audit", "exact", "--out", str(tmp_path / "one.json")]) == 2
    assert f"nothing can be written in {tmp_path}" in capsys.readouterr().err
    kept = ["--save", str(tmp_path / "plan.json")]
    assert main(["plan", "--target", "none.gguf", "--prompts", "none.jsonl", *kept]) == 2
    assert "which cannot be written" in capsys.readouterr().err


def test_a_verdict_that_is_no_pass_is_status_1(exact_is, capsys):
    exact_is(certificate(failures=1))
    assert main(["audit", "exact", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "fail"
    assert main(["audit", "exact"]) == 1
    assert "name a file with --out" in capsys.readouterr().out


def test_a_tampered_certificate_is_status_1_and_no_certificate_is_2(tmp_path, capsys):
    document = certificate(failures=1).to_json() | {"verdict": "pass"}
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document | {"digest": digest(document)}))
    assert main(["audit", "check", str(path)]) == 1
    assert "verdict is 'pass' and should be 'fail'" in capsys.readouterr().out
    del document["verdict"]
    path.write_text(json.dumps(document))
    assert main(["audit", "check", str(path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] is None
    path.write_text("{}")
    assert main(["audit", "check", str(path)]) == 2
    assert main(["audit", "check", ""]) == 2
    assert main(["audit", "check", str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--draft", "ngram"], "--target"),
        (["--target", "smollm2-135m"], "--draft"),
        (["--target", "t", "--draft", "none"], "draft is none"),
        (["--target", "t", "--draft", "t,auto"], "draft is auto"),
        (["--target", "t", "--draft", "ngram", "--temperature", "0"], "--temperature is 0"),
        (["--target", "t", "--draft", "ngram", "--num-speculative-tokens", "4,x"], "'x' is not a whole number"),
        (["--target", "t", "--draft", "ngram", "--draws", "2"], "--draws is 2; it must be at least 6"),
        (["--target", "t", "--draft", "ngram", "--rule", "tokn"], "did you mean 'token'"),
        (["--target", "t", "--draft", "ngram", "--state", ""], "the name of a file is empty"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(flags, message, capsys):
    assert main(["audit", "pair", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_command_names_files_and_not_where_they_lie(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/outrider", "audit", "pair", "--target", "/home/somebody/a model.gguf"])
    assert command() == "outrider audit pair --target 'a model.gguf'"
