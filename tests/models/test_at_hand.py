"""Which models at hand could draft, in which order, and why the others could not."""

import pytest
import tiny

from outrider.errors import UsageError
from outrider.models.at_hand import candidates_for
from outrider.models.open import open_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of models: a target, two of its family, one with its tokens only, one with others, and trouble."""
    folder = tmp_path_factory.mktemp("folder")
    words = tiny.tokenizer_metadata(tiny.build_tokenizer())

    def write(name, architecture, seed, *, metadata=words, **sizes):
        tiny.write_gguf(tiny.build_model(architecture, seed=seed, **sizes), folder / f"{name}.gguf", metadata=metadata)

    write("target", "qwen2", 1, num_hidden_layers=3)
    write("family", "qwen2", 2)
    write("small-family", "qwen2", 3, num_hidden_layers=1)
    write("tokens", "llama", 4, num_hidden_layers=1)
    write("other", "llama", 5, vocab_size=360, num_hidden_layers=1, metadata=None)
    write("larger", "qwen2", 6, num_hidden_layers=4)
    proteins = {**words, "tokenizer.ggml.tokens": [*"ACDEFGHIKLMNPQRSTVWY", "<|im_end|>", "AC"]}
    proteins |= {"tokenizer.ggml.token_type": [1] * 20 + [3, 1], "tokenizer.ggml.merges": ["A C"]}
    proteins |= {"tokenizer.ggml.eos_token_id": 20}
    write("proteins", "llama", 7, vocab_size=22, metadata=proteins)
    (folder / "broken.gguf").write_bytes(b"GGUF")
    (folder / "copy.gguf").write_bytes((folder / "family.gguf").read_bytes())
    (folder / "notes.txt").write_text("no model")
    tiny.write_directory(tiny.build_model("qwen2", seed=8, num_hidden_layers=1), folder / "zdirectory")
    return folder


def test_the_same_family_comes_first_and_among_equals_the_smallest(folder, tmp_path):
    target = open_model(folder / "target.gguf")
    found, left_out = candidates_for(target, {"OUTRIDER_CACHE": str(tmp_path)}, folder)
    names = [one.reference.rsplit("/", 1)[-1] for one in found]
    assert set(names[:3]) == {"small-family.gguf", "zdirectory", "copy.gguf"}
    assert names[2:] == ["copy.gguf", "tokens.gguf", "other.gguf"]
    assert [one.is_family for one in found] == [True] * 3 + [False] * 2
    reasons = {one.reference.rsplit("/", 1)[-1]: one.reason for one in left_out}
    assert set(reasons) == {"broken.gguf", "larger.gguf", "proteins.gguf"}
    assert reasons["larger.gguf"] == "it is no smaller than the target"
    assert "it is refused" in reasons["proteins.gguf"]


def test_without_a_folder_only_the_cache_is_looked_at(folder, tmp_path):
    assert candidates_for(open_model(folder / "target.gguf"), {"OUTRIDER_CACHE": str(tmp_path)}) == ([], [])


@pytest.mark.parametrize("name", ["missing", "target.gguf", "nul\0"])
def test_what_is_no_folder_is_refused(folder, tmp_path, name):
    target = open_model(folder / "target.gguf")
    with pytest.raises(UsageError, match="cannot be listed"):
        candidates_for(target, {"OUTRIDER_CACHE": str(tmp_path)}, folder / name)
