"""Drafters by name, from here and from other packages."""

from importlib.metadata import EntryPoint

import pytest

from outrider.drafters import registry
from outrider.drafters.ngram import NgramDrafter
from outrider.errors import UsageError


def test_a_built_in_name_gives_a_new_drafter_each_time():
    first, second = registry.create_drafter("ngram"), registry.create_drafter("ngram")
    assert isinstance(first, NgramDrafter)
    assert first is not second


def test_every_built_in_drafter_can_be_made_and_bears_its_name():
    for name in registry.BUILT_IN:
        assert registry.create_drafter(name).name == name


def test_an_unknown_name_is_answered_with_the_nearest_and_all_names():
    with pytest.raises(UsageError, match=r"'ngarm'; did you mean 'ngram'\? \(known: ngram\)"):
        registry.create_drafter("ngarm")
    with pytest.raises(UsageError, match=r"'zebra' \(known: ngram\)"):
        registry.create_drafter("zebra")


def test_packages_add_names_but_cannot_take_one_over(monkeypatch):
    def entry_points(*, group):
        assert group == "outrider.drafters"
        return [
            EntryPoint("mine", "outrider.drafters.ngram:NgramDrafter", group),
            EntryPoint("ngram", "no_such_module:Drafter", group),
        ]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    assert list(registry.drafters()) == ["ngram", "mine"]
    assert isinstance(registry.create_drafter("mine"), NgramDrafter)
    assert isinstance(registry.create_drafter("ngram"), NgramDrafter)
