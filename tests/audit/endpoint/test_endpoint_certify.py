"""From two servers on loopback to a certificate whose arithmetic holds."""

import json
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from lettered_server import PROMPTS, ToyModel, Web, serving
from starlette.responses import JSONResponse, PlainTextResponse

from outrider.audit.certificate import check
from outrider.audit.endpoint.certify import EndpointAudit, Surroundings
from outrider.audit.endpoint.client import Server
from outrider.audit.endpoint.plan import Plan
from outrider.errors import EndpointError

PLAN = Plan(prompts=PROMPTS[:1], total_variation=0.5, budget=400, sampled_tokens=3, greedy_tokens=8)


class Servers:
    """Serves toy models for the length of a test."""

    def __init__(self, stack):
        self._stack = stack
        self.waits = []

    def __call__(self, model=None, **faults):
        web = Web(ToyModel() if model is None else model, **faults)
        return SimpleNamespace(web=web, server=Server(base_url=self._stack.enter_context(serving(web))))

    def audit(self, one, other, plan=PLAN, load=None, **limits):
        around = Surroundings(self.waits.append, lambda: datetime(2026, 11, 30, tzinfo=timezone.utc), {}, seed=3)
        baseline = None if other is None else other.server
        audit = EndpointAudit(one.server, baseline, load, plan, around, **limits)
        self._stack.callback(audit.close)
        return audit


@pytest.fixture
def servers():
    with ExitStack() as stack:
        yield Servers(stack)


def finished(audit):
    document = json.loads(json.dumps(audit.run(lambda _: None, "outrider audit endpoint").to_json()))
    assert check(document) == []
    return document


def test_a_right_server_gets_a_certificate(servers):
    one, other = servers(), servers(ToyModel(seed=9, speculates=False))
    audit = servers.audit(one, other)
    estimate = audit.plan.requests(2)
    assert audit.cost().startswith(f"about {estimate:,} requests and at most ")
    document = finished(audit)
    assert document["verdict"] == "pass", document["reason"]
    assert document["found_from_total_variation"] < 0.5
    sent = len(one.web.seen) + len(other.web.seen)
    assert abs(sent - estimate) < 0.1 * estimate
    assert document["subject"]["requests"] == sent + 2  # and the lists of models
    assert document["subject"]["server"] == {"url": one.server.base_url, "model": "toy-model", "api": "completions"}
    assert any(note.startswith("greedy answers: 1 of 1 are equal") for note in document["notes"])


@pytest.mark.parametrize("listed", ["/home/me/models/toy.gguf", "C:\\models\\toy.gguf"])
def test_where_a_servers_model_lies_is_not_told(listed, servers):
    one = servers()
    audited = SimpleNamespace(web=one.web, server=replace(one.server, model=listed))
    plan = replace(PLAN, budget=1)
    assert finished(servers.audit(audited, None, plan))["subject"]["server"]["model"] == "toy.gguf"


def test_a_wrong_one_fails(servers):
    document = finished(servers.audit(servers(ToyModel(("draft",))), servers(ToyModel(speculates=False))))
    assert document["verdict"] == "fail"
    assert "greedy answers" in document["reason"]


def test_too_small_a_budget_is_inconclusive_and_says_what_is_needed(servers):
    plan = replace(PLAN, total_variation=0.05)
    audit = servers.audit(servers(), servers(ToyModel(seed=9)), plan, max_requests=400)
    assert audit.plan.budget < PLAN.budget
    document = finished(audit)
    assert document["verdict"] == "inconclusive"
    assert "observations are needed" in document["reason"]
    assert document["subject"]["requests"] <= 400 + 5


@pytest.mark.parametrize("has_baseline", [True, False])
def test_the_least_claim_still_looks_at_enough(servers, has_baseline):
    """A total variation of 0.5 alone takes 81 answers, too few for any to be compared at six prompts."""
    plan = replace(PLAN, prompts=(), budget=0)
    baseline = servers(ToyModel(seed=9, speculates=False)) if has_baseline else None
    document = finished(servers.audit(servers(), baseline, plan))
    assert document["verdict"] == "pass", document["reason"]


def test_a_limit_on_requests_is_kept_even_if_nothing_comes_of_it(servers):
    one = servers()
    document = finished(servers.audit(one, servers(), max_requests=12))
    assert document["verdict"] == "inconclusive"
    assert len(one.web.seen) <= 12
    assert any(
        "the 12 requests allowed are used up" in note or "raise --max-requests" in note for note in document["notes"]
    )


def test_garbage_in_the_middle_is_inconclusive(servers):
    one = servers()
    audit = servers.audit(one, servers(ToyModel(speculates=False)))
    one.web.script = [PlainTextResponse("<html>sorry</html>")]
    document = finished(audit)
    assert document["verdict"] == "inconclusive"
    assert "must be a JSON object" in document["notes"][-1]


def test_limited_rates_are_waited_out(servers):
    one, other = servers(), servers(ToyModel(seed=9, speculates=False))
    audit = servers.audit(one, other)
    one.web.script = [JSONResponse({}, 429, headers={"Retry-After": "3"})] * 2
    document = finished(audit)
    assert document["verdict"] == "pass"
    assert servers.waits == [3.0, 3.0]
    assert document["subject"]["retries"] == 2


def test_a_server_that_is_not_there_cannot_be_audited(servers):
    one = servers()
    one.web.script = [JSONResponse({"error": "no"}, 403)] * 9
    with pytest.raises(EndpointError, match="403"):
        servers.audit(one, None)


def test_without_a_baseline_the_claim_is_about_the_reported_law(servers):
    document = finished(servers.audit(servers(), None))
    assert document["claim"]["shown_by"] == "tokens and their reported law"
    assert document["verdict"] == "pass"
    silent = finished(servers.audit(servers(ToyModel(("none",))), None))
    assert silent["verdict"] == "inconclusive"
