"""From names to paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from outrider.errors import ModelFileError, UsageError
from outrider.models import resolve as module
from outrider.models.open import open_model
from outrider.models.resolve import resolve


def cache(directory):
    return {"OUTRIDER_CACHE": str(directory)}


def test_a_path_is_itself(tmp_path):
    (tmp_path / "m.gguf").touch()
    assert resolve(str(tmp_path / "m.gguf"), cache(tmp_path)) == tmp_path / "m.gguf"
    assert resolve(str(tmp_path), cache(tmp_path)) == tmp_path


def test_a_catalog_name_is_pulled_even_beside_a_file_of_that_name(tmp_path, monkeypatch):
    pulled = []
    monkeypatch.setattr(module, "pull", lambda model, cache, **_: pulled.append((model.name, cache)) or cache)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-135m").mkdir()
    resolve("smollm2-135m", cache(tmp_path))
    assert pulled == [("smollm2-135m", tmp_path)]
    assert resolve("./smollm2-135m", cache(tmp_path)).samefile(tmp_path / "smollm2-135m")
    assert len(pulled) == 1


def test_nothing_is_pulled_if_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "pull", None)
    with pytest.raises(ModelFileError, match="is not here; outrider models pull smollm2-135m fetches it"):
        resolve("smollm2-135m", cache(tmp_path), fetch=False)


def test_a_hub_reference_goes_to_the_hub(tmp_path, monkeypatch):
    monkeypatch.setattr(module.hub, "locate", lambda reference, fetch: tmp_path / reference[3:])
    assert resolve("hf:a/b@c/d.gguf", cache(tmp_path)) == tmp_path / "a/b@c/d.gguf"


@pytest.mark.parametrize("reference", ["missing.gguf", "some/where", "~/no/such.gguf"])
def test_a_missing_path_is_named(tmp_path, reference):
    with pytest.raises(ModelFileError, match=f"there is no file {reference}"):
        resolve(reference, cache(tmp_path))


def test_an_unknown_name_brings_near_ones(tmp_path):
    near = {"smollm-135m": "smollm2-135m", "smolm": "smollm2-135m", "SmolLM2-135M": "smollm2-135m"}
    near |= {"qwen2.5-coder-1.5": "qwen2.5-coder-1.5b", "Qwen2.5-Coder-0.5B": "qwen2.5-coder-0.5b"}  # dots, no suffix
    for name, meant in near.items():
        with pytest.raises(UsageError, match=rf"unknown model '{name}'; did you mean {meant}\?") as caught:
            resolve(name, cache(tmp_path))
    assert "qwen2.5-coder-1.5b" in str(caught.value)
    with pytest.raises(UsageError, match=r"unknown model 'xyz'; the catalog has"):
        resolve("xyz", cache(tmp_path))


def test_an_empty_reference_is_not_this_directory(tmp_path):
    with pytest.raises(UsageError, match="is empty; give one of"):
        resolve("", cache(tmp_path))


def test_a_path_that_may_not_be_looked_at_is_named(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    for reference in ("private/m.gguf", "private"):
        with pytest.raises(ModelFileError, match=f"{reference} cannot be read: Permission denied; check the path and"):
            resolve(reference, cache(tmp_path))
    with pytest.raises(ModelFileError, match=r"m\.gguf cannot be read: Permission denied"):
        open_model(tmp_path / "m.gguf")


@pytest.mark.parametrize("reference", ["a\0b", "a\0b/c.gguf", "\ud800.gguf"])
def test_what_cannot_be_a_path_is_refused(tmp_path, reference):
    with pytest.raises(ModelFileError, match="cannot be read"):
        resolve(reference, cache(tmp_path))
    with pytest.raises(ModelFileError):
        open_model(Path(reference))


def test_without_a_home_paths_do_and_the_cache_is_asked_for(tmp_path, monkeypatch):
    def homeless(path):
        if str(path).startswith("~"):
            raise RuntimeError("Could not determine home directory.")
        return path

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert resolve(str(tmp_path), {}) == tmp_path
    with pytest.raises(UsageError, match=r"there is no home directory for ~/.cache/outrider; set OUTRIDER_CACHE"):
        resolve("smollm2-135m", {})
    with pytest.raises(UsageError, match="there is no home directory for ~nosuch/c; set OUTRIDER_CACHE"):
        resolve("smollm2-135m", {"OUTRIDER_CACHE": "~nosuch/c"})
    with pytest.raises(ModelFileError, match=r"there is no home directory for ~nosuch/m\.gguf; write the path out"):
        resolve("~nosuch/m.gguf", {})
