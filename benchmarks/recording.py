"""Records greedy answers of a target, and what each draft model would propose at every place of them.

    python -m benchmarks.recording --target T --drafts D ... --out RECORDING.jsonl

What a controller decides about drafts can be replayed on a recording in seconds (:mod:`benchmarks.replay`), at any
costs, where running it takes minutes and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.contestants import CONTEXT
from benchmarks.models import locate
from benchmarks.texts import PROMPTS, pick, read_prompts
from outrider import LLM, SamplingParams
from outrider.drafters.base import Drafter, DraftRequest
from outrider.engine.loading import Model, load_model, load_pair
from outrider.sampling import LawShaper, Vocabulary, compile_params
from outrider.types import Draft

# Of another vocabulary drafts are recorded as they are, for their confidences are not told: see replay.
_LEAST_CHANCE = 0.02
_LONGEST = 12


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a draft model proposes at one place: tokens, and its chance of each; none of another vocabulary."""

    token_ids: tuple[int, ...]
    confidences: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One greedy answer, and for each draft model what it proposes before each token of it but the first."""

    id: str
    family: str
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    drafts: dict[str, tuple[Proposed, ...]]


def read_recording(path: Path) -> list[Recorded]:
    """Read what this script has written."""
    with path.open(encoding="utf-8") as lines:
        return [_from_json(json.loads(line)) for line in lines]


def _from_json(fields: dict[str, object]) -> Recorded:
    one = Recorded(**fields)  # type: ignore[arg-type]
    drafts = {name: tuple(Proposed(**draft) for draft in drafts) for name, drafts in one.drafts.items()}  # type: ignore[arg-type]
    return Recorded(one.id, one.family, tuple(one.prompt_ids), tuple(one.answer_ids), drafts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record greedy answers and what draft models propose along them.")
    parser.add_argument("--target", required=True)
    parser.add_argument("--drafts", nargs="+", required=True)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=4)
    parser.add_argument("--num-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    model = load_model(arguments.target, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)
    drafters = dict(_drafters(model, arguments.drafts, arguments.threads))
    llm = LLM(model)
    params = SamplingParams(max_tokens=arguments.num_tokens)
    with arguments.out.open("w", encoding="utf-8") as lines:
        for prompt in pick(read_prompts(arguments.prompts), arguments.per_family):
            answer_ids = llm.generate(prompt.text, params)[0].token_ids
            prompt_ids = tuple(llm.encode(prompt.text))
            drafts = {name: _along(drafter, model, prompt_ids, answer_ids) for name, drafter in drafters.items()}
            one = Recorded(prompt.id, prompt.family, prompt_ids, answer_ids, drafts)
            lines.write(json.dumps(asdict(one)) + "\n")
            lines.flush()
            print(f"{prompt.id}: {len(prompt_ids)} tokens, {len(answer_ids)} tokens", flush=True)


def _drafters(target: Model, names: list[str], threads: int) -> Iterator[tuple[str, Drafter]]:
    for name in names:
        _, parts = load_pair(target, [name], threads=threads, ctx_size=CONTEXT, resolver=locate)
        yield name, parts[0].drafter


def _along(
    drafter: Drafter, target: Model, prompt_ids: tuple[int, ...], answer_ids: tuple[int, ...]
) -> tuple[Proposed, ...]:
    shaper = LawShaper(compile_params(SamplingParams(), Vocabulary(target.tokenizer, target.vocab_size)), prompt_ids)
    drafts = []
    for place in range(1, len(answer_ids)):
        request = DraftRequest(prompt_ids, [*prompt_ids, *answer_ids[:place]], _LONGEST, shaper, coins=None)  # type: ignore[arg-type]
        (draft,) = drafter.propose([request])
        assert isinstance(draft, Draft)
        drafts.append(Proposed(draft.token_ids, tuple(round(one, 4) for one in draft.confidences)))
    drafter.release(prompt_ids)
    return tuple(drafts)


if __name__ == "__main__":
    main()
