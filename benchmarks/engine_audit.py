"""Does another engine, speculating with a draft model, say what its target would say without?

    python -m benchmarks.engine_audit openvino --coins --out docs/certificates/openvino-coins.json
    python -m benchmarks.engine_audit transformers --target smol.gguf --draft flat.gguf

Engines without a server, OpenVINO GenAI and transformers, draw in a child process (peers/*_draws.py), with and without
the draft. ``--coins`` is the smallest case there is: the models of peers/coin_models.py, whose law is known. Any other
pair is compared with the same engine without the draft: draws at temperature 1, and greedy answers, where this
library's logits at the place where two part tell an error from a near tie. Prints the certificate as JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.coin_models import DRAFT_CHANCE, TARGET_CHANCE, VOCAB_SIZE, A, B, write_coin
from benchmarks.peers.setup import PEERS
from outrider.audit.callables import Sample, audit_callable
from outrider.audit.certificate import Certificate
from outrider.audit.endpoint.plan import COMPLETIONS
from outrider.audit.evidence import Equality
from outrider.backends.base import Rows
from outrider.engine.loading import Model, load_model

ENGINES = ("openvino", "transformers")
NEAR_TIE = 0.1  # nats
GREEDY_LENGTH = 48


class Greedy(Protocol):
    """What says one thing after each prefix."""

    def greedy(self, prefixes: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the greedy answers, as token ids."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine with its models, as something to call for draws.

    Attributes:
        python: Of its environment.
        draft: None for plain decoding.
        length: Tokens of a draw.
        seed: Of the first draw; others follow.
    """

    name: str
    python: Path
    target: Path
    draft: Path | None
    num_assistant_tokens: int
    length: int
    temperature: float = 1.0
    seed: int = 0

    def __call__(self, prefix: Sequence[int], num: int) -> list[list[int]]:
        """Return draws after a prefix."""
        return self.run([prefix], num)["draws"][0]  # type: ignore[no-any-return]

    def greedy(self, prefixes: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return the greedy answer after each prefix."""
        drawn = replace(self, temperature=0.0, length=GREEDY_LENGTH).run(prefixes, 1)["draws"]
        return [answer for [answer] in drawn]

    def facts(self) -> dict[str, Any]:
        """Return what is audited, for a certificate."""
        models = {
            name: next(folder.glob("*.gguf")).name
            for name, folder in (("target", self.target), ("draft", self.draft))
            if folder is not None
        }
        return {"engine": self.name, **models, "num_assistant_tokens": self.num_assistant_tokens} | {
            "temperature": self.temperature,
            "tokens_a_draw": self.length,
        }

    def run(self, prefixes: Sequence[Sequence[int]], num: int) -> dict[str, Any]:
        """Return the child's document: its version, and draws by prefix."""
        task = {
            "target": str(self.target),
            "draft": None if self.draft is None else str(self.draft),
            "prefixes": [list(prefix) for prefix in prefixes],
            "num_draws": num,
            "length": self.length,
            "num_assistant_tokens": self.num_assistant_tokens,
            "temperature": self.temperature,
            "first_seed": self.seed,
        }
        script = Path(__file__).parent / "peers" / f"{self.name}_draws.py"
        done = subprocess.run(
            [self.python, script], input=json.dumps(task), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{self.name} failed: {done.stderr[-2000:]}")
        document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return document


def coin_law(temperature: float, _prefix: Sequence[int] = ()) -> NDArray[np.float64]:
    """Return the law of the coin's target: everything but two tokens has less than one in 10**17, here zero."""
    law = np.zeros(VOCAB_SIZE)
    weights = [chance ** (1 / temperature) for chance in (TARGET_CHANCE, 1 - TARGET_CHANCE)]
    law[[A, B]] = np.array(weights) / sum(weights)
    return law


def greedy(plain: Greedy, drafted: Greedy, prefixes: Sequence[Sequence[int]], model: Model) -> Equality:
    """Compare greedy answers; parting at a near tie is no failure, and is told in the examples."""
    failures, examples = 0, []
    for prefix, expected, said in zip(prefixes, plain.greedy(prefixes), drafted.greedy(prefixes), strict=True):
        pairs = enumerate(zip(expected, said, strict=False))
        place = next((index for index, (one, other) in pairs if one != other), None)
        if place is None:
            failures += len(expected) != len(said)
            continue
        gap = logit_gap(model, [*prefix, *expected[:place]], expected[place], said[place])
        failures += gap > NEAR_TIE
        examples.append(f"after {place} tokens {said[place]} instead of {expected[place]}, by {gap:.3f} nats")
    return Equality("greedy answers", len(prefixes), failures, tuple(examples))


def logit_gap(model: Model, prefix: Sequence[int], expected: int, said: int) -> float:
    """Return by how much our target finds one token likelier than another, in nats."""
    sequence = model.backend.open_sequence()
    logits = model.backend.forward([Rows(sequence, prefix)])[0]
    gap = float(logits[expected] - logits[said])
    model.backend.close_sequence(sequence)
    return gap


def audit(  # noqa: PLR0913 - what there is to say of an audit
    engine: Sample,
    plain: Engine | None,
    texts: Sequence[str],
    *,
    model: Model | None,
    num: int,
    temperature: float,
    subject: dict[str, Any],
    versions: dict[str, str],
    command: str,
) -> Certificate:
    """Audit an engine with its draft: against the coins' law, or against itself without the draft.

    Args:
        engine: With the draft.
        plain: Without; None for coins.
        texts: To go on from, if not with coins.
        model: The target, as we read it; None for coins.
        num: Draws after each text.
        temperature: Of the draws.
        subject: See :class:`~outrider.audit.certificate.Certificate`, as for what follows.
        versions: See there.
        command: See there.
    """
    prefixes = [[A, B]] if model is None else [model.tokenizer.encode(text) for text in texts]
    return audit_callable(
        engine,
        prefixes,
        law=partial(coin_law, temperature) if model is None else None,
        baseline=plain,
        num_draws=num,
        total_variation=0.05,
        now=datetime.now(timezone.utc),
        subject=subject,
        versions=versions,
        command=command,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--coins", action="store_true", help="the models of peers/coin_models.py")
    parser.add_argument("--plain", action="store_true", help="without the draft, to see that the engine is right then")
    parser.add_argument("--draft-chance", type=float, default=DRAFT_CHANCE, help="of an a, by the coins' draft")
    parser.add_argument("--target", type=Path, help="a GGUF file")
    parser.add_argument("--draft", type=Path, help="a GGUF file; none for plain decoding")
    parser.add_argument("--prefixes", type=int, default=len(COMPLETIONS), help="how many of the built-in texts")
    parser.add_argument("--draws", type=int, default=2000, help="after each prefix")
    parser.add_argument("--length", type=int, default=8, help="tokens of a draw")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--draft-tokens", type=int, default=3, help="a round")
    parser.add_argument("--peers", type=Path, default=PEERS, help="where the environments are")
    parser.add_argument("--out", type=Path, help="write the certificate here")
    arguments = parser.parse_args()
    if arguments.coins == (arguments.target is not None):
        parser.error("give either --coins or --target")
    with tempfile.TemporaryDirectory() as scratch:
        folders = place_models(arguments, Path(scratch))
        engine = Engine(
            arguments.engine,
            (arguments.peers / arguments.engine / "bin/python").absolute(),
            folders["target"],
            None if arguments.plain else folders.get("draft"),
            arguments.draft_tokens,
            arguments.length,
            arguments.temperature,
        )
        plain = replace(engine, draft=None, seed=1 << 30)
        model = None if arguments.coins else load_model(arguments.target, threads=1)
        texts = COMPLETIONS[: arguments.prefixes]
        certificate = audit(
            engine,
            None if model is None else plain,
            texts,
            model=model,
            num=arguments.draws,
            temperature=arguments.temperature,
            subject=engine.facts(),
            versions={arguments.engine: plain.run([[A, B]], 1)["version"]},
            command=" ".join(["python -m benchmarks.engine_audit", *(Path(word).name for word in sys.argv[1:])]),
        )
        if model is not None:
            prefixes = [model.tokenizer.encode(text) for text in texts]
            certificate = replace(certificate, evidence=(*certificate.evidence, greedy(plain, engine, prefixes, model)))
    document = certificate.to_json()
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document))


def place_models(arguments: argparse.Namespace, scratch: Path) -> dict[str, Path]:
    """Return a folder with one GGUF file for each model: OpenVINO writes its own form beside it."""
    folders = {}
    for name in ("target", "draft"):
        file = getattr(arguments, name)
        if arguments.coins or file is not None:
            folder = folders[name] = scratch / name
            folder.mkdir()
            if arguments.coins:
                chance = TARGET_CHANCE if name == "target" else arguments.draft_chance
                write_coin(folder / f"{name}.gguf", chance)
            else:
                shutil.copy(file, folder)
    return folders


if __name__ == "__main__":
    main()
