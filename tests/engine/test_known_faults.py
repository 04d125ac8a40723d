"""Faults that other engines had, where no other test of this room is about them; see docs/faults.md."""

import pytest
from engine_fakes import Pieces, ScriptLM, answer, make_stepper, result_of

import outrider.engine.rules
from outrider import SamplingParams
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.rules import parse_rule
from outrider.errors import UsageError

TARGET = HashLM(vocab_size=11, seed=3)


def draft_model(**options):
    return DraftModelDrafter(ToyBackend(HashLM(11, seed=4)), vocab_size=11, name="toy", **options)


@pytest.mark.parametrize(("rule", "size"), [("token", 0), ("block", 0), ("token", 6), ("block", 6)])
def test_the_laws_of_a_drawn_draft_reach_the_rule(rule, size, monkeypatch):
    """vllm#40149: a fallback for drafts without laws ran in silence."""
    seen = []
    name = "verify_tree" if size else f"verify_{rule}"
    verify = getattr(outrider.engine.rules, name)

    def spy(draft, laws, coins):
        probs = [one for one in draft.probs if one is not None] if len(draft) else []
        seen.extend((one.shape, float(one.sum())) for one in probs)
        return verify(draft, laws, coins)

    monkeypatch.setattr(outrider.engine.rules, name, spy)
    monkeypatch.setitem(outrider.engine.rules._VERIFIERS, rule, spy)
    stepper = make_stepper(TARGET, drafter=draft_model(tree_size=size), k=3, max_tree_tokens=size, rule=rule)
    answer(stepper, [(1, 2)], SamplingParams(temperature=1.0, max_tokens=20))
    assert len(seen) >= 10
    assert all(shape == (11,) and total == pytest.approx(1) for shape, total in seen)


@pytest.mark.parametrize("name", ["typical", "relaxed", "threshold", "greedy_block", "", "TOKEN", None, 3])
def test_nothing_lossy_can_be_asked_for(name):
    """vllm#5131 and others: typical or relaxed acceptance, one setting away and not marked in the answer."""
    with pytest.raises(UsageError, match="it must be one of auto, token, block, coupled"):
        parse_rule(name)
    for field in ("posterior_threshold", "typical_acceptance", "accept_tolerance"):
        with pytest.raises(TypeError):
            SamplingParams(**{field: 0.3})


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_text_does_not_depend_on_the_draft_length(temperature):
    """TensorRT-LLM#2208: two and five draft tokens gave different answers."""
    params = SamplingParams(temperature=temperature, seed=2, max_tokens=60)
    found = set()
    for k in (0, 1, 2, 5, 13):
        (one,) = answer(make_stepper(TARGET, drafter=draft_model(), k=k), [(1, 2)], params, seeds=[2])
        found.add(tuple(one.token_ids))
    assert len(found) == 1


def test_a_repeated_list_has_no_item_twice_and_none_missing():
    """vllm#7627: with look-ups in the prompt an item came twice, or a comma got lost."""
    items = [*range(1, 9), 3, 3, 3, 1, 2, 1, 2, 1, 2, 3]
    model = ScriptLM([*items, *items, 9], vocab_size=12)
    pieces = Pieces([f"{number}, ".encode() for number in range(12)])
    for k in range(1, 12):
        stepper = make_stepper(model, pieces=pieces, drafter=NgramDrafter(), k=k, eos_ids={9})
        (one,) = answer(stepper, [(0,)], SamplingParams(max_tokens=99))
        ids, text, reason = result_of(one)
        assert ids == [*items, *items, 9]
        assert text == "".join(f"{number}, " for number in items * 2)
        assert reason == "stop"
        assert one.counters.num_accepted_tokens > 0
