"""Asks llama.cpp how it cuts the hard texts, for every tokenizer that a GGUF file can name.

The answers are kept beside this file and compared with ours in ``test_gguf_tokenizer.py``. Run it again, in an
environment with the extras ``reference`` and ``peers``, when texts or pre-tokenizers are added::

    python tests/models/golden/make.py ~/.cache/outrider/models/smollm2-135m.gguf
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import urllib.request
from pathlib import Path

import sentencepiece
import xllamacpp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import texts  # noqa: E402
import tiny  # noqa: E402

PRE_TOKENIZERS = ("default", "gpt-2", "llama-bpe", "qwen2", "smollm")


def ask(path: Path) -> list[dict[str, list[int]]]:
    """Return llama.cpp's token ids of every text, with control tokens taken literally and parsed."""
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.warmup = str(path), 256, False
    server = xllamacpp.Server(params)

    def post(text: str, parse_special: bool) -> list[int]:
        body = {"content": text, "add_special": parse_special, "parse_special": parse_special}
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(server.listening_address + "/tokenize", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["tokens"]

    return [{"literal": post(text, False), "parsed": post(text, True)} for text in texts.HARD_TEXTS]


def sentencepiece_metadata() -> dict[str, object]:
    """Return a SentencePiece vocabulary as Llama's, trained on the hard texts."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([text for text in texts.HARD_TEXTS * 3 if text.strip()]),
        model_writer=trained,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_proto=trained.getvalue())
    ids = range(model.vocab_size())
    kinds = [6 if model.is_byte(i) else 3 if model.is_control(i) else 2 if model.is_unknown(i) else 1 for i in ids]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in ids],
        "tokenizer.ggml.scores": [float(model.get_score(i)) for i in ids],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": model.bos_id(),
        "tokenizer.ggml.eos_token_id": model.eos_id(),
        "tokenizer.ggml.unknown_token_id": model.unk_id(),
    }


def main() -> None:
    byte_level = tiny.tokenizer_metadata(tiny.build_tokenizer())
    variants = {pre: {**byte_level, "tokenizer.ggml.pre": pre} for pre in PRE_TOKENIZERS}
    variants["llama-bpe"]["tokenizer.ggml.bos_token_id"] = byte_level["tokenizer.ggml.tokens"].index("<|endoftext|>")
    variants["sentencepiece"] = sentencepiece_metadata()
    variants["sentencepiece, no prefix"] = variants["sentencepiece"] | {"tokenizer.ggml.add_space_prefix": False}
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    answers = {"smollm2-135m": {"expected": ask(Path(sys.argv[1]))}}
    with tempfile.TemporaryDirectory() as directory:
        for name, metadata in variants.items():
            path = Path(directory) / "model.gguf"
            model = tiny.build_model("llama", vocab_size=len(metadata["tokenizer.ggml.tokens"]), **sizes)
            tiny.write_gguf(model, path, metadata=metadata)
            answers[name] = {"metadata": metadata, "expected": ask(path)}
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    (HERE / "llama_cpp.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
