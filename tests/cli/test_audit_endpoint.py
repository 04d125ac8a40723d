"""outrider audit endpoint, from its flags to its exit status."""

import json

import pytest
from lettered_server import PROMPTS, ToyModel, Web, serving

from outrider.audit.certificate import check

SMALL = ("--tv", "0.5", "--budget", "300", "--yes", "--json")


@pytest.fixture(scope="module")
def urls():
    with (
        serving(Web(ToyModel(seed=1))) as right,
        serving(Web(ToyModel(("draft",), seed=2))) as wrong,
        serving(Web(ToyModel(seed=3, speculates=False))) as plain,
    ):
        yield {"right": right, "wrong": wrong, "plain": plain}


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text(json.dumps({"prompt": PROMPTS[0]}) + "\n")
    return path


@pytest.mark.parametrize(("name", "verdict", "status"), [("right", "pass", 0), ("wrong", "fail", 1)])
def test_it_says_pass_or_fail_and_writes_a_certificate(outrider, urls, prompts, tmp_path, name, verdict, status):
    out = tmp_path / "certificate.json"
    base = ("--base-url", urls[name], "--baseline-url", urls["plain"], "--prompts", prompts, "--out", out)
    got, stdout, stderr = outrider("audit", "endpoint", *base, *SMALL)
    assert got == status, stderr
    document = json.loads(stdout)
    assert document["verdict"] == verdict
    assert check(document) == []
    assert json.loads(out.read_text()) == document
    assert urls[name] in out.with_suffix(".html").read_text()
    assert stderr.startswith("this takes about ")
    assert f"{verdict}: greedy answers: " in stderr


def test_a_limit_that_is_too_low_concludes_nothing(outrider, urls, prompts):
    base = ("--base-url", urls["right"], "--baseline-url", urls["plain"], "--prompts", prompts, "--max-requests", "20")
    status, stdout, _ = outrider("audit", "endpoint", *base, *SMALL)
    assert status == 1
    document = json.loads(stdout)
    assert document["verdict"] == "inconclusive"
    assert "the 20 requests allowed are used up; raise --max-requests" in document["reason"]
    assert document["subject"]["requests"] == 20


def test_a_model_file_stands_in_for_a_baseline(outrider, models, tmp_path):
    """The server's model is another one, so the audit must not pass; that it is read and asked is what is tested."""
    with serving(Web(ToyModel())) as url:
        status, stdout, _ = outrider("audit", "endpoint", "--base-url", url, "--target", models["target"], *SMALL)
    document = json.loads(stdout)
    assert status == 1
    assert document["verdict"] == "inconclusive"
    assert "compare a model with itself" in document["notes"][0]
    assert document["subject"]["baseline"]["name"] == "target.gguf"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--base-url", "toy"), "is no http URL"),
        (("--base-url", "http://127.0.0.1:9/v1", "--baseline-url", "x", "--target", "y"), "are both given"),
        (("--base-url", "http://127.0.0.1:9/v1", "--tv", "1"), "--tv is 1.0; it must be below 1"),
        (("--base-url", "http://127.0.0.1:9/v1", "--budget", "0"), "--budget is 0; it must be above 0"),
        (("--base-url", "http://127.0.0.1:9/v1", "--timeout", "nan"), "--timeout is nan"),
        (("--base-url", "http://127.0.0.1:9/v1", "--api-key-env", "NO_SUCH_KEY"), "'NO_SUCH_KEY', and that variable"),
        (("--base-url", "http://127.0.0.1:9/v1", "--extra-body", "[1"), "is not JSON"),
        (("--base-url", "http://127.0.0.1:9/v1", "--extra-body", '{"a": NaN}'), "NaN is not a number"),
        (("--base-url", "http://127.0.0.1:9/v1", "--extra-body", "[]"), "must be an object"),
        ((), "Missing option '--base-url'"),
    ],
)
def test_bad_usage_is_said_in_one_line(outrider, flags, message):
    status, _, stderr = outrider("audit", "endpoint", *flags)
    assert status == 2
    assert message in stderr
    assert stderr.count("\n") == 1


def test_nobody_is_charged_without_agreeing(outrider, urls):
    status, _, stderr = outrider("audit", "endpoint", "--base-url", urls["right"])
    assert status == 2
    assert "this takes about" in stderr
    assert "add --yes" in stderr
