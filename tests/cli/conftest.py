"""Tiny models on disk for the command line's tests."""

import pytest
import tiny

from outrider.cli import main


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Return paths by name: a target, a draft for it, a model with another vocabulary, and one that knows no text."""
    directory = tmp_path_factory.mktemp("models")
    vocabulary = tiny.tokenizer_metadata(tiny.build_tokenizer())
    paths = {name: directory / f"{name}.gguf" for name in ("target", "draft", "other", "proteins")}
    tiny.write_gguf(tiny.build_model("qwen2", seed=1), paths["target"], metadata=vocabulary)
    tiny.write_gguf(tiny.build_model("llama", seed=2), paths["draft"], metadata=vocabulary)
    tiny.write_gguf(tiny.build_model("llama", seed=3, vocab_size=360), paths["other"])
    proteins = {**vocabulary, "tokenizer.ggml.tokens": [*"ACDEFGHIKLMNPQRSTVWY", "<|im_end|>", "AC"]}
    proteins |= {"tokenizer.ggml.token_type": [1] * 20 + [3, 1], "tokenizer.ggml.merges": ["A C"]}
    proteins |= {"tokenizer.ggml.eos_token_id": 20}
    tiny.write_gguf(tiny.build_model("llama", vocab_size=22), paths["proteins"], metadata=proteins)
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
def outrider(capfd):
    """Run a command in this process; return its status, stdout and stderr."""

    def run(*args):
        status = main([str(arg) for arg in args])
        return status, *capfd.readouterr()

    return run
