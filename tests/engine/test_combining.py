"""What drafters become when several are named, and at which costs."""

from itertools import count
from types import SimpleNamespace

import pytest
from engine_fakes import PlannedDrafter
from toy_llm import toy_model

from outrider import LLM
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.engine import combining, loading
from outrider.engine.combining import combine, default_length, measured_costs, open_store
from outrider.engine.costs import Costs
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
        ("ngram", CascadeDrafter, 64),
        ("auto", CascadeDrafter, 64),
        (toy_model(seed=1), CascadeDrafter, 64),
        ([toy_model(seed=1)], CascadeDrafter, 12),
        ([toy_model(seed=1), None], CascadeDrafter, 12),
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
    assert (model.costs.at(1), model.max_tokens) == (pytest.approx(0.3), 3)
    assert (lookup.costs, lookup.drafter.store) == (None, store)
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

    weight_bytes = 1000

    def bytes_per_token(self):
        return 10


def timed(seconds, monkeypatch):
    monkeypatch.setattr(combining, "NativeBackend", Native)
    monkeypatch.setattr(combining, "measure", lambda backend, clock, *, rows, cache_share: seconds(backend, rows))


def native_target():
    target = toy_model()
    object.__setattr__(target, "backend", Native(HashLM(300, seed=1)))
    return target


def test_costs_are_measured_and_those_of_toys_assumed(monkeypatch):
    target, small = native_target(), Native(HashLM(300, seed=2))
    part = Part(PlannedDrafter(lambda context: ()), small)
    curves = {target.backend: PassCosts(((1, 2.0), (8, 4.0))), small: PassCosts(((1, 0.5), (8, 1.0)))}
    timed(lambda backend, rows: curves[backend], monkeypatch)
    assert measured_costs([part], target.backend, lambda: 0.0, None) == (curves[target.backend], [curves[small]])
    toys = measured_costs(parts_of([toy_model(seed=1)]), ToyBackend(HashLM(3, seed=1)), lambda: 0.0, None)
    assert toys[0] == PassCosts()
    assert [one.at(1) for one in toys[1]] == [pytest.approx(0.3)]
    drafter = combine([part, Part(NgramDrafter())], target, store=None, max_model_tokens=None, clock=lambda: 0.0)
    assert drafter.members[0].costs.at(1) == 0.5


def test_two_draft_models_of_one_name_have_each_its_own_costs(monkeypatch):
    target, small, smaller = native_target(), Native(HashLM(300, seed=2)), Native(HashLM(300, seed=3))
    curves = {
        target.backend: PassCosts(((1, 2.0), (8, 4.0))),
        small: PassCosts(((1, 0.5), (8, 1.0))),
        smaller: PassCosts(((1, 0.1), (8, 0.2))),
    }
    timed(lambda backend, rows: curves[backend], monkeypatch)
    parts = [Part(PlannedDrafter(lambda context: ()), small), Part(PlannedDrafter(lambda context: ()), smaller)]
    for known in (None, Costs(curves[target.backend], {"planned": PassCosts()})):
        assert measured_costs(parts, target.backend, lambda: 0.0, known)[1] == [curves[small], curves[smaller]]


def test_models_take_turns_at_being_timed_and_what_slows_one_down_for_a_while_does_not_count(monkeypatch):
    target, small = native_target(), Native(HashLM(300, seed=2))
    timed_last = []

    def seconds(backend, rows):
        timed_last.append(backend)
        slow = 5 if timed_last == [target.backend, small] else 1  # while the draft is first timed
        return PassCosts(((1, 2.0 * slow), (8, 4.0 * slow)))

    timed(seconds, monkeypatch)
    part = Part(PlannedDrafter(lambda context: ()), small)
    costs = measured_costs([part], target.backend, lambda: 0.0, None)
    assert timed_last == [target.backend, small] * 2
    assert costs[1] == [costs[0]]


def test_only_rows_that_there_is_room_for_are_measured(monkeypatch):
    asked = []
    timed(lambda backend, rows: asked.append(rows) or PassCosts(), monkeypatch)
    measured_costs([], Native(HashLM(3, seed=1), 20), lambda: 0.0, None)
    measured_costs([], Native(HashLM(3, seed=1), 1), lambda: 0.0, None)
    assert asked == [[1, 2, 4, 8, 16]] * 2


def test_costs_that_are_known_are_not_measured_again(monkeypatch):
    timed(lambda backend, rows: pytest.fail("measured"), monkeypatch)
    known = Costs(PassCosts(((1, 2.0), (2, 3.0))), {"planned": PassCosts(((1, 1.0), (2, 1.0)))})
    part = Part(PlannedDrafter(lambda context: ()), Native(HashLM(300, seed=2)))
    costs = measured_costs([part], native_target().backend, lambda: 0.0, known)
    assert costs == (known.target, [known.drafts["planned"]])


def test_other_vocabularies_and_names_have_other_stores(tmp_path):
    models = [toy_model(), toy_model(name="other"), toy_model(swapped=True), toy_model(num_unused=3), toy_model(seed=5)]
    paths = [open_store(tmp_path, model).path for model in models]
    assert len(set(paths[:3])) == 3
    assert paths[0] == paths[3] == paths[4]


def test_the_clock_of_an_engine_is_not_used_for_toys():
    ticks = count()
    LLM(toy_model(), toy_model(seed=1), clock=lambda: float(next(ticks)))
    assert next(ticks) == 2


def test_auto_is_lookups_and_the_likeliest_model_that_is_clearly_smaller(monkeypatch, tmp_path):
    def at_hand(sizes):
        found = [SimpleNamespace(reference=name, files=SimpleNamespace(file_bytes=size)) for name, size in sizes]
        monkeypatch.setattr(
            loading, "candidates_for", lambda files, environment, folder: (asked.append(folder), found)[::-1]
        )
        return loading._at_hand(loading.Opened("t", SimpleNamespace(file_bytes=100), tmp_path / "t.gguf"))

    asked = []
    assert at_hand([("sibling", 90), ("small", 60), ("smaller", 10)]) == ["small", "ngram"]
    assert at_hand([("sibling", 90)]) == ["ngram"]
    assert asked == [tmp_path] * 2
    assert loading._at_hand(toy_model()) == ["ngram"]
