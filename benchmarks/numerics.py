"""How far are the next-token laws from those of the float32 model, for us and for llama.cpp, on the same file?

    python -m benchmarks.numerics --model qwen2.5-coder-1.5b --out R.json

Mean KL(reference || engine) over the text of the prompts, every family with as many positions. Needs the ``reference``
extra; the 1.5B model takes 7 GB while the reference runs, whose laws are then kept in ``--cache``.
"""

from __future__ import annotations

import argparse
import hashlib
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np

from benchmarks.divergence import Comparison, compare, join, paired_difference
from benchmarks.laws import Passage, backend_laws, cached, llama_cpp_laws
from benchmarks.models import load_backend, locate
from benchmarks.peers.llama_cpp import NATIVE, installed
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.reference import Reference
from benchmarks.texts import PROMPTS, family_texts, read_prompts
from outrider.backends.native import WeightFormat
from outrider.models.open import open_model

QUESTION = "Mean KL divergence of next-token laws from the dequantised float32 model: ours and llama.cpp's"
WEIGHTS: tuple[WeightFormat, ...] = get_args(WeightFormat)


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--model", required=True, help="a GGUF file: catalog name, path or hf: reference")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--positions", type=int, default=64, help="laws compared in each family")
    parser.add_argument("--context", type=int, default=32, help="tokens before the first law compared")
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=WEIGHTS)
    parser.add_argument("--peers", type=Path, default=Path(".peers"))
    parser.add_argument("--cache", type=Path, default=Path(".cache/laws"))
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    hand_in(arguments, QUESTION, measure(arguments, locate(arguments.model)))


def measure(arguments: argparse.Namespace, path: Path) -> dict[str, object]:
    passages = read_passages(path, arguments.prompts, arguments.context, arguments.positions)
    folder = arguments.cache / hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    reference = Reference(path, arguments.threads)
    laws = [cached(folder, "reference", passage, reference.laws) for passage in passages]
    del reference  # 4 bytes a weight

    peer = installed(arguments.peers)[-1]
    name = hashlib.sha256(peer.version.encode()).hexdigest()[:16]
    theirs = partial(llama_cpp_laws, arguments.peers / NATIVE, path)
    parts = [compare(true, cached(folder, name, p, theirs)) for true, p in zip(laws, passages, strict=True)]
    engines = {peer.name: join(parts)}
    for weights in arguments.weights:
        backend = load_backend(path, weights, max_length=1024, threads=arguments.threads)
        parts = [compare(true, backend_laws(backend, p)) for true, p in zip(laws, passages, strict=True)]
        engines[f"outrider {weights}"] = join(parts)
        del backend
    return {
        "model": arguments.model,
        "positions_per_family": {passage.family: passage.num_laws for passage in passages},
        "versions": {peer.name: peer.version},
        "engines": {name: engine.summary() for name, engine in engines.items()},
        "outrider_minus_llama_cpp": differences(engines),
    }


def read_passages(path: Path, prompts: Path, context: int, positions: int) -> list[Passage]:
    """Return the beginning of each family's prompts, joined, as tokens of the model, bos included if it wants one.

    Families whose prompts are too few for that many tokens are left out.
    """
    tokenizer = open_model(path).tokenizer
    passages = []
    for family, text in family_texts(read_prompts(prompts)).items():
        token_ids = tokenizer.encode(text)[: context + positions]
        if len(token_ids) == context + positions:
            passages.append(Passage(family, tuple(token_ids), context))
    return passages


def differences(engines: dict[str, Comparison]) -> dict[str, object]:
    """Return, for each of ours and each of theirs, the mean difference in KL on the same positions."""
    rng = np.random.default_rng(0)
    ours = [name for name in engines if name.startswith("outrider")]
    return {
        f"{our} - {their}": paired_difference(engines[our].kl, engines[their].kl, rng)
        for our in ours
        for their in engines
        if their not in ours
    }


if __name__ == "__main__":
    main()
