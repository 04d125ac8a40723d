"""outrider models, where nothing has to be fetched."""

import json

import pytest

from outrider.models import download
from outrider.models.catalog import CATALOG


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("OUTRIDER_CACHE", str(tmp_path))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def test_a_path_is_here_already(outrider, models):
    assert outrider("models", "pull", models["target"]) == (
        0,
        models["target"] + "\n",
        f"{models['target']} is a path already; there is nothing to fetch\n",
    )


@pytest.mark.parametrize("command", ["pull", "show"])
def test_an_empty_reference_is_refused(outrider, command):
    status, out, err = outrider("models", command, "")
    assert (status, out) == (2, "")
    assert err.startswith("outrider: the reference to a model is empty; ")


def test_one_cached_model_that_may_not_be_read_does_not_hide_the_others(outrider, cache, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(download, "_hash_file", refuse)
    model = CATALOG["smollm2-135m"]
    with (cache / "smollm2-135m.gguf").open("wb") as file:
        file.truncate(model.num_bytes)
    status, out, _ = outrider("models", "list")
    assert status == 0
    assert len(out.splitlines()) == len(CATALOG)
    assert "cannot be read: Permission denied" in next(line for line in out.splitlines() if line.startswith(model.name))
    entries = {entry["name"]: entry for entry in json.loads(outrider("models", "list", "--json")[1])["models"]}
    assert entries[model.name]["path"] is None
    assert "Permission denied" in entries[model.name]["problem"]
