"""Every check passes a right server, finds the fault it is for, and concludes nothing from nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest
from lettered_server import LETTERS, PROMPTS, ToyModel, draft_law, target_law

from outrider.audit.endpoint.greedy import check_greedy, part
from outrider.audit.endpoint.meaning import meaning_checks
from outrider.audit.endpoint.plan import Plan
from outrider.audit.endpoint.questions import Answer, Place
from outrider.audit.endpoint.run import audit_endpoint
from outrider.audit.endpoint.sampling import check_claimed, check_law
from outrider.errors import BudgetError, EndpointError, RefusedError

LEVEL = 1e-4
PLAN = Plan(prompts=PROMPTS, total_variation=0.1, budget=900, sampled_tokens=4, greedy_tokens=24)
LONG = replace(PLAN, prompts=PROMPTS[:1], budget=6000)


def audit(audited, baseline, plan=PLAN, same_engine=True):
    """Return the checks by name, and with them what each came to."""
    steps = audit_endpoint(
        audited, baseline, plan, same_engine=same_engine, rng=np.random.default_rng(5), progress=lambda *_: None
    )
    return {check.evidence.name: check for check in steps}


def verdicts(checks):
    return {name: check.verdict(LEVEL) for name, check in checks.items()}


def failed(checks):
    return {name for name, verdict in verdicts(checks).items() if verdict == "fail"}


def test_a_right_server_passes_every_check():
    checks = audit(ToyModel(seed=1), ToyModel(seed=2, speculates=False), LONG)
    assert set(verdicts(checks).values()) == {"pass"}, checks
    assert len(checks) == 12


@pytest.mark.parametrize(
    ("fault", "checks"),
    [
        ("draft", {"greedy answers", "presence_penalty", "frequency_penalty"}),
        ("penalty", {"presence_penalty", "frequency_penalty"}),
        ("overrun", {"max_tokens", "stop"}),
        ("logprobs", {"logprobs"}),
        ("none", {"logprobs"}),
        ("seed", {"seed"}),
        ("impossible", {"no impossible tokens"}),
    ],
)
def test_a_fault_is_found_by_the_checks_that_are_for_it(fault, checks):
    found = audit(ToyModel((fault,), seed=3), ToyModel(seed=4, speculates=False))
    assert checks <= failed(found)
    # What one fault makes of others is not always nothing: greedy text is longer if max_tokens is.
    assert failed(found) - checks <= {"greedy answers", "presence_penalty", "frequency_penalty", "logprobs"}


def test_a_wrong_residual_is_found_by_both_comparisons():
    found = audit(ToyModel(("residual",), seed=3), ToyModel(seed=4, speculates=False), LONG)
    assert failed(found) == {"sampled answers"}  # for the other comparison there are a quarter as many
    assert "tokens and their reported law" in failed(audit(ToyModel(("residual",), seed=5), None, LONG))


def one_round_tv(ids):
    """Return the total variation of the token after a plain one, if a rejected token is drawn anew from the target."""
    target, draft = np.array(target_law(ids)), np.array(draft_law(ids))
    kept = np.minimum(target, draft)
    return abs(kept + (1 - kept.sum()) * target - target).sum() / 2


def test_the_wrong_residual_is_a_small_fault():
    after = [tuple(map(LETTERS.index, prompt + letter)) for prompt in PROMPTS for letter in LETTERS[:-1]]
    assert 0.02 < np.mean([one_round_tv(ids) for ids in after]) < 0.1


def test_frozen_randomness_is_no_answer():
    check = audit(ToyModel(("frozen",)), ToyModel(seed=4, speculates=False))["sampled answers"]
    assert check.verdict(LEVEL) == "inconclusive"
    assert check.is_needed
    assert "the same answer to a prompt every time" in check.summary


def test_a_small_difference_to_another_program_is_not_called_a_fault():
    def answers(num_a):
        return {"p": [Answer("a")] * num_a + [Answer("b")] * (60_000 - num_a)}

    sides = [{"p": list(np.random.default_rng(1).permutation(one["p"]))} for one in map(answers, (30_000, 29_100))]
    unexplained = check_law(*sides, same_engine=True, level=LEVEL)
    explained = check_law(*sides, same_engine=False, level=LEVEL)
    assert unexplained.verdict(LEVEL) == "fail"
    assert explained.verdict(LEVEL) == "inconclusive"
    assert "--baseline-url" in explained.summary


def test_too_few_answers_say_nothing():
    check = audit(ToyModel(seed=1), ToyModel(seed=2), replace(PLAN, budget=30))["sampled answers"]
    assert check.verdict(LEVEL) == "inconclusive"
    assert "raise --budget" in check.summary


def test_without_a_baseline_the_server_is_held_to_its_own_word():
    checks = audit(ToyModel(seed=1), None)
    assert {name for name, verdict in verdicts(checks).items() if verdict != "pass"} == {
        "greedy answers",
        "sampled answers",
    }
    assert not any(check.is_needed for check in checks.values())
    silent = audit(ToyModel(("none", "penalty", "seed")), None)
    assert silent["tokens and their reported law"].is_needed
    assert failed(silent) == set()


def answer(*tokens, gap=1.0, top=True):
    places = tuple(Place(token, -0.1, {token: -0.1, "x": -0.1 - gap} if top else {}) for token in tokens)
    return Answer("".join(tokens), places, "length", 1, len(tokens))


def said_to_be(logprob, top):
    """Return an answer whose second token is told about in this way."""
    return Answer("ab", (Place("a", -0.1, {"a": -0.1}), Place("b", logprob, top)), "length", 1, 2)


def test_partings():
    assert part("", answer("a", "b"), answer("a", "b")) is None
    near = part("", answer("a", "x"), answer("a", "b", gap=0.01))
    assert (near.place, near.said, near.expected) == (1, "x", "b")
    assert near.gap == pytest.approx(0.01)
    further = part("", answer("a", "z"), answer("a", "b", gap=3))  # than the last listed
    assert further.gap == pytest.approx(3)
    assert (near.is_least, further.is_least) == (False, True)
    assert part("", answer("a", "x"), answer("a", "b", top=False)).gap is None
    assert part("", answer("a"), answer("a", "b")).gap is None
    assert part("", answer("a", "x"), answer("a", "b", gap=-1)).gap is None  # the token said is not the likeliest
    assert part("", answer("a", "x"), said_to_be(-math.inf, {"b": -math.inf, "x": -math.inf})).gap is None
    text_only = part("", Answer("abx"), Answer("aby"))
    assert (text_only.place, text_only.said, text_only.expected, text_only.gap) == (2, "x", "y", None)


def test_tokens_that_are_spelled_alike_are_not_held_against_a_server():
    """Two bytes with chances of a half each, both spelled U+FFFD: one probability is all that arrives."""
    one = Answer("\ufffd", (Place("\ufffd", math.log(0.5), {"\ufffd": math.log(0.5), "a": math.log(1e-9)}),))
    checks = check_claimed({"p": [one] * 500}, np.random.default_rng(1), LEVEL, is_needed=False)
    assert "fail" not in {check.verdict(LEVEL) for check in checks}


class Fixed:
    """Answers everything alike."""

    name = "fixed"

    def __init__(self, one):
        self.one = one

    def ask_many(self, questions):
        return [self.one] * len(questions)


@pytest.mark.parametrize(
    ("said", "expected", "verdict"),
    [
        (answer("a", "b"), answer("a", "b"), "pass"),
        (answer("a", "x"), answer("a", "b", gap=0.05), "pass"),
        (answer("a", "x"), answer("a", "b", gap=0.5), "fail"),
        (answer("a", "z"), answer("a", "b", gap=0.5), "fail"),
        # A server that reports one token, or nothing but zeros or nulls, has not said that others are as likely.
        (answer("a", "x"), said_to_be(0.0, {"b": 0.0}), "inconclusive"),
        (answer("a", "x"), said_to_be(-0.1, {"b": -0.1, "c": -0.15}), "inconclusive"),
        (answer("a", "x"), said_to_be(-math.inf, {"b": -math.inf, "x": -math.inf}), "inconclusive"),
        (Answer("ab"), Answer("ac"), "inconclusive"),
        (Answer(""), Answer(""), "inconclusive"),
    ],
)
def test_near_ties_are_told_from_errors(said, expected, verdict):
    check = check_greedy(Fixed(said), Fixed(expected), ["p"], max_tokens=2, near_tie=0.1)
    assert check.verdict(LEVEL) == verdict
    assert check.is_needed == (verdict == "inconclusive")


@pytest.mark.parametrize(("faults", "verdict"), [((), "fail"), (("raw",), "inconclusive")])
def test_penalties_that_lag_behind_do_not_pass_for_near_ties(faults, verdict):
    """By logprobs from before penalties, what should have been penalised is likelier than what should be said."""
    plan = replace(PLAN, prompts=("aa", "bc", "cd"))
    found = audit(ToyModel(("stale", *faults), seed=3), ToyModel(faults, seed=4, speculates=False), plan)
    for name in ("presence_penalty", "frequency_penalty"):
        assert found[name].verdict(LEVEL) == verdict
        assert found[name].is_needed == (verdict == "inconclusive")
    right = audit(ToyModel(faults, seed=3), ToyModel(faults, seed=4, speculates=False), plan)
    assert failed(right) == set()
    assert not any(right[name].is_needed for name in found if name.endswith("penalty"))


def test_a_server_that_says_little_is_not_judged_by_it():
    silent = Fixed(Answer("a"))
    checks = {name: check() for name, check in meaning_checks(silent, silent, ["p"], 8, 0.1)}
    assert {check.verdict(LEVEL) for check in checks.values()} == {"inconclusive"}
    assert not any(check.is_needed for check in checks.values())
    assert all(check.summary for check in checks.values())


class Failing(ToyModel):
    """Raises an error from its nth request on, or for requests with some field."""

    def __init__(self, error, after=0, for_field=None):
        super().__init__()
        self.error, self.after, self.for_field = error, after, for_field

    def ask(self, question):
        if len(self.asked) >= self.after and (self.for_field is None or getattr(question, self.for_field) is not None):
            raise self.error
        return super().ask(question)


def test_what_is_refused_is_left_out():
    checks = audit(Failing(RefusedError("no penalties here"), for_field="presence_penalty"), ToyModel(speculates=False))
    assert {name for name, verdict in verdicts(checks).items() if verdict != "pass"} == {"presence_penalty"}
    assert "no penalties here" in checks["presence_penalty"].summary
    assert not checks["presence_penalty"].is_needed


@pytest.mark.parametrize("error", [BudgetError("used up"), EndpointError("it is gone")])
@pytest.mark.parametrize("after", [0, 100, 400])
def test_a_server_that_is_gone_ends_the_audit(error, after):
    checks = audit(Failing(error, after), ToyModel(speculates=False))
    last = list(checks.values())[-1]
    assert last.is_needed
    assert last.verdict(LEVEL) == "inconclusive"
    assert str(error) in last.summary


def test_unequal_tokenizers_end_the_audit():
    class Other(ToyModel):
        def ask(self, question):
            return replace(super().ask(question), prompt_tokens=99)

    checks = audit(Other(), ToyModel())
    assert list(checks) == ["tokenizers"]
    assert checks["tokenizers"].is_needed
    assert "is 99 tokens, and 2 for the baseline" in checks["tokenizers"].summary
