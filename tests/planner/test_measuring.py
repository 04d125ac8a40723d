"""Prompts are measured in turns, as many as there is time for, and passes as they are among rounds."""

from itertools import count

import pytest
from toy_llm import toy_model

from outrider.backends.metered import Pass
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.planner.choices import PLAIN, Choice
from outrider.planner.lineup import Lineup
from outrider.planner.measuring import Clocked, Measured, in_turns, measure
from outrider.planner.meter import Prompted, Setting
from outrider.sampling import SamplingParams, Vocabulary, compile_params

PROMPTS = [Prompted(str(number), "ab"[number // 3], (65, 66, number)) for number in range(4)]


def measured(budget_s):
    ticks, told = count(), []
    target = toy_model(max_length=24)
    setting = Setting(
        target,
        compile_params(SamplingParams(max_tokens=5), Vocabulary(target.tokenizer, target.vocab_size)),
        lambda: float(next(ticks)),
    )
    found = measure(
        Lineup(target, {}, ("ngram",), setting.clock),
        setting,
        PROMPTS,
        [PLAIN, Choice(("ngram",), 4)],
        seed=1,
        budget_s=budget_s,
        progress=lambda what, share: told.append((what, share)),
    )
    return found, told


def test_families_take_turns():
    assert [one.id for one in in_turns(PROMPTS)] == ["0", "3", "1", "2"]


@pytest.mark.parametrize(("budget_s", "ids"), [(0.0, ["0"]), (1e9, ["0", "3", "1", "2"])])
def test_there_is_time_for_one_prompt_at_least(budget_s, ids):
    found, told = measured(budget_s)
    assert [one.id for one in found.recordings] == ids
    assert all([one.id for one in answers] == ids for answers in found.answers.values())
    assert told[-1] == ("measured", 1.0)
    assert any(what == "prompt 1 of 4: ngram, 4" for what, _ in told)
    assert min(share for _, share in told) >= 0


def test_passes_are_priced_as_they_are_among_rounds():
    curve = PassCosts(((1, 1.0), (2, 1.0)))
    found = Measured({"t": Clocked((), 0.0), "d": Clocked((), 0.0)}, Costs(curve, {"d": curve}))
    assert found.costs.target.at(1) == 1.0
    times = [((1, 0), 1.0), ((1, 0), 1.1), ((2, 0), 1.5), ((200, 0), 50.0)]
    found.live += [Pass("t", (shape,), seconds) for shape, seconds in times]
    assert found.slower("t") == pytest.approx(1.2)
    assert found.costs.target.at(2) == pytest.approx(1.2)
    assert found.slower("d") == found.costs.drafts["d"].at(1) == 1.0


def test_what_rounds_of_the_target_take_beside_passes_is_added_to_those_replayed():
    found, _ = measured(1e9)
    before = [one.other_s for one in found.answers[PLAIN][0].rounds]
    found.beside_s = [-1.0, 0.25, 9.0]
    found.add_beside()
    assert [one.other_s for one in found.answers[PLAIN][0].rounds] == [one + 0.25 for one in before]
    found.beside_s = [-9.0]
    found.add_beside()
    assert {one.other_s for one in found.answers[PLAIN][0].rounds} == {0.0}
