"""On a machine that keeps its word, predictions come true to rounding; on one that changes its speed, at its costs."""

from dataclasses import dataclass, replace

import pytest
from toy_llm import toy_model

from outrider.backends.metered import MeteredBackend
from outrider.backends.toy import ToyBackend
from outrider.models.vocabularies import Relation
from outrider.planner import validate as module
from outrider.planner.choices import PLAIN, Choice
from outrider.planner.formulas import expected_tokens
from outrider.planner.lineup import DraftModel, Lineup
from outrider.planner.measuring import measure
from outrider.planner.meter import Prompted, Setting
from outrider.planner.predict import answer_seconds, speed
from outrider.planner.validate import hold, validate
from outrider.sampling import SamplingParams, Vocabulary, compile_params

CHOICES = [
    PLAIN,
    *(Choice(("draft",), length) for length in (1, 2, 4, 8)),
    Choice(("draft",), 4, 9),
    Choice(("draft", "ngram")),
    Choice(("ngram",), 16),
]
PROMPTS = [
    Prompted(f"{family}{number}", family, tuple(f"{letter} {number}".encode() * 60))
    for number in range(2)
    for family, letter in (("easy", "e"), ("hard", "h"))
]


@dataclass
class Machine:
    """Seconds pass when passes are made, and at no other time."""

    now: float = 0.0
    whole: float = 1.0  # times as slow in what a pass of one row takes
    added: float = 1.0  # and in what rows and context add

    def clock(self):
        return self.now

    def take(self, unit, rows, length):
        self.now += unit * (self.whole + self.added * (0.05 * (rows - 1) + 1e-3 * length + 1e-4 * rows * length))


class CostlyBackend(ToyBackend):
    """A toy whose passes take time."""

    def __init__(self, toy, machine, unit):
        super().__init__(toy, 400)
        self.take = lambda rows, length: machine.take(unit, rows, length)

    def forward(self, batch):
        rows = sum(len(one.token_ids) for one in batch)
        self.take(rows, max(self.length(one.sequence_id) for one in batch))
        return super().forward(batch)


@dataclass(frozen=True)
class Opinion:
    """Is sure of what comes next, and quick to say so.

    One that is like another is nearly always of its opinion after a prompt that begins with e, half of the time else.
    """

    vocab_size: int
    is_like_another: bool = False

    def weights(self, prefix):
        told = sum(prefix) + 31 * len(prefix)
        is_off = self.is_like_another and told % (19 if prefix[0] == ord("e") else 2) == 0
        weights = [1] * self.vocab_size
        weights[(7 * told + is_off) % 256] = 10**6
        return tuple(weights)


def planned(**params):
    """Return a machine, what was measured on it and the setting and line-up that it was measured with."""
    machine = Machine()
    target = toy_model(name="target")
    target = replace(target, backend=CostlyBackend(Opinion(target.vocab_size), machine, 1.0))
    like = Opinion(target.vocab_size, is_like_another=True)
    draft = replace(target, name="draft", backend=CostlyBackend(like, machine, 0.2))
    metered = MeteredBackend(draft.backend, "draft", machine.clock)
    lineup = Lineup(target, {"draft": DraftModel(draft, metered, Relation.IDENTICAL)}, ("ngram",), machine.clock)
    compiled = compile_params(SamplingParams(max_tokens=24, **params), Vocabulary(target.tokenizer, target.vocab_size))
    setting = Setting(target, compiled, machine.clock)
    return (
        machine,
        measure(lineup, setting, PROMPTS, CHOICES, seed=1, budget_s=1e9, progress=lambda _what, _share: None),
        setting,
        lineup,
    )


def run(measured, setting, lineup):
    return validate(lineup, setting, measured.recordings, CHOICES, measured.timed_costs, lambda _what, _share: None)


@pytest.fixture(scope="module", params=[{}, {"temperature": 1.0, "seed": 3}], ids=["greedy", "coupled"])
def steady(request):
    _, measured, *rest = planned(**request.param)
    ran = run(measured, *rest)
    return measured, ran, hold(rest[0], measured, ran)


def test_predictions_come_true_on_a_steady_machine(steady):
    measured, ran, held = steady
    drafted = {choice: sum(one.num_draft_tokens for one in own[0].rounds) for choice, own in ran.items()}
    assert all(drafted[choice] > 0 for choice in CHOICES if "draft" in choice.drafts)
    for choice, one in held.items():
        assert one.num_differing == 0
        assert one.measured[None] == pytest.approx(speed(measured.answers[choice], measured.costs), rel=1e-6)
        for family in (None, "easy", "hard"):
            assert one.repriced[family] == pytest.approx(one.measured[family], rel=1e-6)


def test_one_mean_acceptance_would_not_do(steady):
    """The closed form with the mean over prompts and places, as if all were alike, misses by far."""
    measured, _, held = steady
    choice = CHOICES[4]
    rounds = [one for answer in measured.answers[choice] for one in answer.rounds]
    tested = sum(min(one.num_draft_tokens, one.num_accepted + 1) for one in rounds)
    mean = sum(one.num_accepted for one in rounds) / tested
    seconds = answer_seconds(measured.answers[choice], measured.costs).sum() / len(rounds)
    assert abs(expected_tokens([mean] * 8) / seconds / held[choice].measured[None] - 1) > 0.1


def test_a_machine_that_has_changed_its_speed_is_told_from_a_prediction_that_is_wrong():
    machine, measured, setting, lineup = planned()
    machine.whole, machine.added = 1.5, 1.1
    held = hold(setting, measured, run(measured, setting, lineup))
    for choice, one in held.items():
        assert speed(measured.answers[choice], measured.costs) > 1.1 * one.measured[None]
        assert one.repriced[None] == pytest.approx(one.measured[None], rel=0.02)


def test_whoever_has_come_least_far_goes_on(monkeypatch):
    _, measured, setting, lineup = planned()
    step, told = module._step, []

    def noted(*given):
        told.append(given[-1].num_tokens)
        step(*given)

    monkeypatch.setattr(module, "_step", noted)
    module.validate(lineup, setting, measured.recordings[:1], CHOICES, measured.timed_costs, lambda _what, _share: None)
    assert len(told) > 30
    assert told == sorted(told)
