"""A plan is used where it belongs, and refused elsewhere with the difference named."""

from dataclasses import replace
from pathlib import Path

import pytest
import tiny
from plans import made_up, outcome

from outrider.errors import UsageError
from outrider.models.open import open_model
from outrider.planner.apply import apply_plan, read_plan
from outrider.planner.document import HeldDraft, to_json


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    directory = tmp_path_factory.mktemp("models")
    found = {name: directory / f"{name}.gguf" for name in ("target", "draft", "other")}
    for seed, path in enumerate(found.values()):
        tiny.write_gguf(tiny.build_model("llama", seed=seed, num_hidden_layers=1), path)
    return {name: str(path) for name, path in found.items()}


@pytest.fixture
def plan(paths):
    prints = tuple(open_model(Path(paths[name])).fingerprint for name in ("target", "draft"))
    return made_up(paths["target"], paths["draft"], prints)


def used(plan, tmp_path, **arguments):
    path = tmp_path / "plan.json"
    path.write_text(to_json(plan))
    given = {"resolver": Path, "environment": {}, "threads": 1, **arguments}
    return apply_plan(path, **given)


def test_what_is_recommended_is_used_at_the_costs_that_were_measured(plan, paths, tmp_path):
    planned = used(plan, tmp_path)
    assert (planned.target, planned.draft, planned.num_speculative_tokens) == (paths["target"], [paths["draft"]], 4)
    assert (planned.draft_tree, planned.rule, planned.draft_options) == (0, "auto", None)
    assert planned.costs.target.at(1) == 0.02
    assert planned.costs.drafts["draft"].at(2, 100) == pytest.approx(0.021 + 1e-4 + 2e-5)
    held = replace(plan, settings=replace(plan.settings, draft_options=HeldDraft("int8", None, None, 256)))
    assert used(held, tmp_path).draft_options.window == 256


def test_not_to_speculate_is_no_draft(plan, tmp_path):
    assert used(replace(plan, recommended=0), tmp_path).draft == []


def test_another_machine_is_refused(plan, tmp_path):
    other = replace(plan, machine=replace(plan.machine, cpu="Abacus", cores=9))
    with pytest.raises(UsageError, match=r"is for another machine: cpu .* instead of Abacus; cores .* instead of 9"):
        used(other, tmp_path)
    with pytest.raises(UsageError, match="threads 2 instead of 1"):
        used(plan, tmp_path, threads=2)


def test_as_many_threads_compute_as_were_measured(plan, tmp_path):
    assert used(plan, tmp_path, threads=None).threads == plan.machine.threads
    three = replace(plan, machine=replace(plan.machine, threads=3))
    assert used(three, tmp_path, threads=None).threads == 3


def test_other_models_are_refused(plan, paths, tmp_path):
    with pytest.raises(UsageError, match=r"is for another model: .*other\.gguf has the fingerprint"):
        used(plan, tmp_path, target=paths["other"])
    with pytest.raises(UsageError, match=r"draft\.gguf has the fingerprint"):
        used(replace(plan, drafts=(replace(plan.drafts[0], fingerprint="cc"),)), tmp_path)
    unused = replace(plan, drafts=(replace(plan.drafts[0], fingerprint="cc"),), recommended=0)
    assert used(unused, tmp_path).draft == []


def test_a_curve_that_makes_no_sense_is_refused(plan, tmp_path):
    bent = replace(plan.passes[0], curve=replace(plan.passes[0].curve, points=((2, 1.0), (1, 1.0))))
    with pytest.raises(UsageError, match="pass costs are"):
        used(replace(plan, passes=(bent, plan.passes[1])), tmp_path)


@pytest.mark.parametrize("name", ["missing.json", ".", "nul\0"])
def test_what_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match="cannot be read"):
        read_plan(tmp_path / name)


def test_a_choice_of_several_drafts_keeps_their_order(plan, paths, tmp_path):
    both = outcome("both", 30.0, drafts=(paths["draft"], "ngram"))
    planned = used(replace(plan, choices=(*plan.choices, both), recommended=3), tmp_path)
    assert planned.draft == [paths["draft"], "ngram"]
    assert planned.num_speculative_tokens is None
