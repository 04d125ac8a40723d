"""What drafters become when several are named, and at which costs."""

from itertools import count

import pytest
from engine_fakes import PlannedDrafter
from toy_llm import toy_model

from outrider import LLM
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.engine import combining
from outrider.engine.combining import combine, default_length, measured_costs, open_store
from outrider.engine.loading import Part, load_pair
from outrider.errors import UsageError


def parts_of(draft):
    return load_pair(toy_model(), draft, threads=None, ctx_size=None, resolver=None)[1]


def combined(draft, **options):
    options = {"store": None, "max_model_tokens": None, "clock": lambda: 0.0, **options}
    return combine(parts_of(draft), toy_model(), **options)


@pytest.mark.parametrize(
    ("draft", "kind", "length"),
    [
        (None, type(None), 0),
        ("none", type(None), 0),
        ([], type(None), 0),
        ("ngram", NgramDrafter, 64),
        ("auto", NgramDrafter, 64),
        (toy_model(seed=1), CascadeDrafter, 64),
        ([toy_model(seed=1)], DraftModelDrafter, 6),
        ([toy_model(seed=1), None], DraftModelDrafter, 6),
        (PlannedDrafter(lambda context: ()), PlannedDrafter, 6),
        (["ngram", PlannedDrafter(lambda context: ())], CascadeDrafter, 64),
    ],
)
def test_what_is_named_and_what_becomes_of_it(draft, kind, length):
    drafter = combined(draft)
    assert isinstance(drafter, kind)
    assert default_length(drafter) == length


def test_a_model_is_joined_by_lookups_which_see_the_store(tmp_path):
    store = open_store(tmp_path, toy_model())
    drafter = combined(toy_model(seed=1, name="small"), store=store, max_model_tokens=3)
    model, lookup = drafter.members
    assert (model.token_cost, model.max_tokens) == (0.3, 3)
    assert (lookup.token_cost, lookup.drafter.store) == (0, store)
    assert drafter.name == "small + ngram"


def test_a_drafter_of_the_users_own_is_left_as_it_is():
    own = NgramDrafter(costs=PassCosts(((1, 1.0), (2, 9.0))))
    assert combined(own) is own
    assert own.costs.at(2) == 9.0


def test_an_empty_name_among_several_is_refused():
    for draft in ("ngram,", ["ngram", ""]):
        with pytest.raises(UsageError, match="draft is"):
            parts_of(draft)


class Native(ToyBackend):
    """A toy that is timed as if it were not one."""


def timed(seconds, monkeypatch):
    monkeypatch.setattr(combining, "NativeBackend", Native)
    monkeypatch.setattr(combining, "pass_seconds", lambda backend, rows, clock: [seconds(backend, n) for n in rows])


def test_costs_are_measured_and_never_fall_with_more_rows(monkeypatch):
    backend = Native(HashLM(3, seed=1))
    timed(lambda backend, rows: {1: 2.0, 4: 1.9, 8: 3.0, 16: 2.5, 32: 8.0}[rows], monkeypatch)
    assert measured_costs(backend, lambda: 0.0).points == ((1, 1.0), (4, 1.03), (8, 1.5), (16, 1.5), (32, 4.0))
    assert measured_costs(ToyBackend(HashLM(3, seed=1)), lambda: 0.0) == PassCosts()
    assert measured_costs(Native(HashLM(3, seed=1), 20), lambda: 0.0) == PassCosts()
    timed(lambda backend, rows: 0.0, monkeypatch)
    assert measured_costs(backend, lambda: 0.0).at(32) == 1.31


def test_a_draft_models_token_costs_what_its_pass_takes_of_the_targets(monkeypatch):
    target = toy_model()
    object.__setattr__(target, "backend", Native(HashLM(300, seed=1)))
    small = Native(HashLM(300, seed=2))
    timed(lambda backend, rows: 0.5 if backend is small else 2.0, monkeypatch)
    parts = [Part(PlannedDrafter(lambda context: ()), small), Part(NgramDrafter())]
    drafter = combine(parts, target, store=None, max_model_tokens=None, clock=lambda: 0.0)
    assert drafter.members[0].token_cost == 0.25


def test_other_vocabularies_and_names_have_other_stores(tmp_path):
    models = [toy_model(), toy_model(name="other"), toy_model(swapped=True), toy_model(num_unused=3), toy_model(seed=5)]
    paths = [open_store(tmp_path, model).path for model in models]
    assert len(set(paths[:3])) == 3
    assert paths[0] == paths[3] == paths[4]


def test_the_clock_of_an_engine_is_not_used_for_toys():
    ticks = count()
    LLM(toy_model(), toy_model(seed=1), clock=lambda: float(next(ticks)))
    assert next(ticks) == 2
