"""What each verification rule accepts, and whether a tree of draft tokens beats a chain of the same cost.

    python -m benchmarks.rules --target T --draft D --per-family 2 --out R.json

The target answers every prompt, greedily and at temperature 1. At every position of the answers the laws of both models
give the chance that a candidate of each rank is the one accepted. At every few positions each contestant drafts, the
target scores the draft in one pass and the contestant's rule verifies it, all from the same context.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.laws import Passage, backend_laws
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, Prompt, pick, read_prompts
from outrider import LLM, SamplingParams
from outrider.backends.base import Rows
from outrider.drafters.base import DraftRequest
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.tree_shape import best_tree, expected_accepted
from outrider.engine.loading import Model, load_model
from outrider.sampling import LawShaper, TargetLaw, Vocabulary, compile_params, target_probs
from outrider.types import Draft, DraftCoins, DraftProbs, Probs, TargetProbs, TreeDraft, Verdict
from outrider.verification import (
    CoinSource,
    Purpose,
    RaceCoins,
    verify_greedy,
    verify_point_mass,
    verify_tree,
    verify_tree_greedy,
)

QUESTION = "Accepted draft tokens by verification rule, and trees against chains of the same cost"
NUM_RANKS = 6


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way to draft and to verify.

    Attributes:
        depth: The most draft tokens after one another.
        size: How many there are in the tree; 0 for a chain.
        rule: ``"greedy"``, ``"token"``, ``"block"`` or ``"coupled"``; trees of draws are verified as candidates are.
        min_confidence: When to stop drafting.
    """

    depth: int
    size: int
    rule: str
    min_confidence: float = 0.0

    @property
    def name(self) -> str:
        """How the tables call it."""
        shape = f"tree of {self.size}, {self.depth} deep" if self.size else f"chain of {self.depth}"
        return f"{shape}{', stopping in doubt' if self.min_confidence else ''}, {self.rule}"


def contestants(temperature: float) -> list[Contestant]:
    """Return who takes part."""
    shapes = [(4, 0, 0.0), (8, 0, 0.0), (6, 0, 0.5), (4, 8, 0.0), (4, 15, 0.0), (6, 15, 0.0), (6, 15, 0.5)]
    if temperature == 0:
        return [Contestant(depth, size, "greedy", low) for depth, size, low in shapes]
    by_rule = [Contestant(4, 0, "token"), Contestant(8, 0, "token"), Contestant(4, 0, "coupled")]
    trees = [Contestant(4, 15, "coupled")]
    return by_rule + [Contestant(depth, size, "block", low) for depth, size, low in shapes] + trees


def ranks_of_draws(target: Probs, drafted: Probs, token_ids: Sequence[int]) -> list[float]:
    """Return for each of some draws without replacement the chance that it is the one accepted."""
    chances, left = [], 1.0
    for token_id in token_ids:
        share = left * min(1.0, target[token_id] / drafted[token_id])
        chances.append(share)
        left -= share
        rest = np.maximum(target - drafted, 0)
        undrawn = np.where(np.arange(len(drafted)) == token_id, 0, drafted)
        if rest.sum() == 0 or undrawn.sum() == 0:
            break
        target, drafted = rest / rest.sum(), undrawn / undrawn.sum()
    return chances + [0.0] * (NUM_RANKS - len(chances))


def accepted_by_token(draft: Draft, laws: TargetProbs) -> float:
    """Return how many tokens of a drawn chain the token rule accepts on average."""
    probs = _drafted(draft)
    ratios = [min(1.0, laws[row][x] / probs[row][x]) for row, x in enumerate(draft.token_ids)]
    return float(np.cumprod(ratios).sum())


def accepted_by_block(draft: Draft, laws: TargetProbs) -> float:
    """Return how many tokens of a drawn chain the block rule accepts on average (2403.10444, algorithm 2)."""
    probs = _drafted(draft)
    weight, passes = 1.0, []
    for row, x in enumerate(draft.token_ids):
        weight = min(1.0, weight * laws[row][x] / probs[row][x])
        if row + 1 == len(draft):
            passes.append(weight)
            break
        left = float(np.maximum(weight * np.asarray(laws[row + 1]) - np.asarray(probs[row + 1]), 0).sum())
        passes.append(1.0 if weight == 1 else left / (left + 1 - weight))
    fails = np.cumprod(1 - np.array(passes[::-1]))[::-1]  # of all beginnings of at least this length
    return float((1 - fails).sum())


def _drafted(draft: Draft) -> DraftProbs:
    if draft.probs is None:
        raise AssertionError("the draft model tells its laws")
    return draft.probs


@dataclass(frozen=True, slots=True)
class Pair:
    """Both models, and how the requests of this benchmark choose tokens."""

    target: Model
    draft: Model
    temperature: float

    @property
    def params(self) -> SamplingParams:
        """Of every answer; the seed makes the benchmark repeatable."""
        return SamplingParams(temperature=self.temperature, max_tokens=64, seed=1 if self.temperature else None)

    def shaper(self) -> LawShaper:
        """Return what logits go through: nothing but the temperature."""
        vocabulary = Vocabulary(self.target.tokenizer, self.target.vocab_size)
        return LawShaper(compile_params(self.params, vocabulary), ())

    def drafter(self, one: Contestant) -> DraftModelDrafter:
        """Return the draft model drafting as a contestant does."""
        return DraftModelDrafter(
            self.draft.backend,
            vocab_size=self.target.vocab_size,
            name=one.name,
            stop_ids=self.target.tokenizer.eos_ids,
            min_confidence=one.min_confidence,
            tree_size=one.size,
        )


def ranks(pair: Pair, passage: Passage) -> Iterator[dict[str, list[float]]]:
    """Yield for each position, and way to choose candidates, the chance that each rank is the one accepted."""
    size = pair.target.vocab_size
    theirs = backend_laws(pair.target.backend, passage)[:, :size].copy()
    ours = backend_laws(pair.draft.backend, passage)[:, :size]
    for place, (target_row, draft_row) in enumerate(zip(theirs, ours, strict=True)):
        order = np.argsort(-draft_row, kind="stable")[:NUM_RANKS]
        if pair.temperature == 0:
            yield {"greedy": [float(token_id == target_row.argmax()) for token_id in order]}
            continue
        target, drafted = (target_probs(row[np.newaxis], pair.params)[0] for row in (target_row, draft_row))
        coins = CoinSource(place).at(0, Purpose.DRAFT)
        shared = RaceCoins(CoinSource(place), 0)
        winner = shared.at_depth(0).draw(target)
        yield {
            "drawn": ranks_of_draws(target, drafted, _draws(drafted, coins)),
            "chosen": [float(target[token_id]) for token_id in order],
            "coupled": [float(token_id == winner) for token_id in _draws(drafted, shared)],
        }


def _draws(law: Probs, coins: DraftCoins) -> list[int]:
    """Return draws without replacement."""
    left, token_ids = law.copy(), []
    for _ in range(NUM_RANKS):
        token_ids.append(coins.at_depth(0).draw(left))
        left[token_ids[-1]] = 0
    return token_ids


@dataclass(frozen=True, slots=True)
class Round:
    """What one draft was worth."""

    contestant: str
    num_accepted: float
    num_drafted: int
    draft_s: float
    target_s: float


def rounds(pair: Pair, prompt: Passage, stride: int) -> Iterator[Round]:
    """Let every contestant draft after every ``stride`` tokens of an answer."""
    backend = pair.target.backend
    drafters = {one: pair.drafter(one) for one in contestants(pair.temperature)}
    cache = backend.open_sequence()
    for end in range(prompt.first + 1, len(prompt.token_ids), stride):
        context = prompt.token_ids[:end]
        backend.forward([Rows(cache, context[backend.length(cache) : -1], 0)])
        for one, drafter in drafters.items():
            yield _round(pair, one, drafter, context, cache)
    backend.close_sequence(cache)
    for drafter in drafters.values():
        drafter.release(0)


def _round(pair: Pair, one: Contestant, drafter: DraftModelDrafter, context: Sequence[int], cache: int) -> Round:
    shaper, source, backend = pair.shaper(), CoinSource(7), pair.target.backend
    is_coupled = one.rule == "coupled"
    coins = RaceCoins(source, len(context)) if is_coupled else source.at(len(context), Purpose.DRAFT)
    started_at = time.perf_counter()
    (draft,) = drafter.propose([DraftRequest(0, context, one.depth, shaper, coins, one.size)])
    drafted_at = time.perf_counter()
    fork = backend.fork(cache)
    parents = [-1, *(parent + 1 for parent in draft.parents)] if isinstance(draft, TreeDraft) else None
    logits = backend.forward([Rows(fork, [context[-1], *draft.token_ids], len(draft) + 1, parents)])
    scored_at = time.perf_counter()
    backend.close_sequence(fork)
    law = TargetLaw(logits[:, : pair.target.vocab_size], shaper, draft)
    num_accepted = _num_accepted(one.rule, draft, law, source, len(context))
    return Round(one.name, num_accepted, len(draft), drafted_at - started_at, scored_at - drafted_at)


def _num_accepted(rule: str, draft: Draft | TreeDraft, law: TargetLaw, source: CoinSource, position: int) -> float:
    if isinstance(draft, Draft) and rule in ("token", "block"):
        return (accepted_by_token if rule == "token" else accepted_by_block)(draft, law.probs)
    return len(_verdict(rule, draft, law, source, position).path)


def _verdict(rule: str, draft: Draft | TreeDraft, law: TargetLaw, source: CoinSource, position: int) -> Verdict:
    if isinstance(draft, TreeDraft):
        if rule == "greedy":
            return verify_tree_greedy(draft, law.token_ids)
        if rule == "coupled":
            chosen = TreeDraft(draft.token_ids, draft.parents, (None,) * (len(draft) + 1))
            return verify_tree(chosen, law.probs, RaceCoins(source, position))
        return verify_tree(draft, law.probs, source.at(position, Purpose.VERIFY))
    if rule == "greedy":
        return verify_greedy(draft, law.token_ids)
    return verify_point_mass(draft, law.probs, RaceCoins(source, position))


def summary(done: Sequence[Sequence[Round]]) -> dict[str, dict[str, float]]:
    """Sum rounds up by contestant. The error is that of the mean over prompts, whose rounds are not independent."""
    table = {}
    for name in dict.fromkeys(one.contestant for group in done for one in group):
        groups = [[one for one in group if one.contestant == name] for group in done]
        every = [one for group in groups for one in group]
        means = [float(np.mean([one.num_accepted for one in group])) for group in groups]
        seconds = sum(one.draft_s + one.target_s for one in every)
        table[name] = {
            "accepted_per_round": float(np.mean([one.num_accepted for one in every])),
            "standard_error": float(np.std(means, ddof=1) / len(means) ** 0.5) if len(means) > 1 else 0.0,
            "drafted_per_round": float(np.mean([one.num_drafted for one in every])),
            "draft_ms": 1e3 * float(np.median([one.draft_s for one in every])),
            "target_ms": 1e3 * float(np.median([one.target_s for one in every])),
            "tokens_per_s": sum(1 + one.num_accepted for one in every) / seconds,
            "rounds": len(every),
        }
    return table


def difference(done: Sequence[Sequence[Round]], ours: str, theirs: str) -> dict[str, float]:
    """Return how many more tokens a contestant accepts than another after the same contexts, and that mean's error."""
    gains = []
    for group in done:
        one, other = ([each.num_accepted for each in group if each.contestant == name] for name in (ours, theirs))
        gains.append(float(np.mean(np.subtract(one, other))))
    error = float(np.std(gains, ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else 0.0
    return {"mean": float(np.mean(gains)), "standard_error": error, "prompts": len(gains)}


def answers(pair: Pair, prompts: Sequence[Prompt]) -> list[Passage]:
    """Return what the target says to each prompt."""
    llm = LLM(pair.target, pair.draft)
    told = ((one, llm.encode(one.text), llm.generate(one.text, pair.params)[0]) for one in prompts)
    return [Passage(one.family, (*ids, *answer.token_ids), len(ids)) for one, ids, answer in told]


def examine(pair: Pair, prompts: Sequence[Prompt], stride: int) -> dict[str, object]:
    """Return the results for one temperature."""
    passages = answers(pair, prompts)
    by_way: dict[str, list[list[float]]] = {}
    done = []
    for number, passage in enumerate(passages, start=1):
        for position in ranks(pair, passage):
            for way, chances in position.items():
                by_way.setdefault(way, []).append(chances)
        done.append(list(rounds(pair, passage, stride)))
        print(f"temperature {pair.temperature}: {number}/{len(passages)}", flush=True)
    by_rank = {way: np.mean(rows, axis=0).tolist() for way, rows in by_way.items()}
    first = next(iter(by_rank.values()))
    trees = {
        f"{size} tokens, {depth} deep": best_tree(first, size, depth) for depth, size in [(4, 8), (4, 15), (6, 15)]
    }
    named = {(one.depth, one.size, one.rule, one.min_confidence): one.name for one in contestants(pair.temperature)}
    best = "greedy" if pair.temperature == 0 else "block"
    pairs = [(named[4, 15, best, 0.0], named[4, 0, best, 0.0]), (named[4, 15, best, 0.0], named[8, 0, best, 0.0])]
    if pair.temperature:
        pairs += [(named[depth, 0, "block", 0.0], named[depth, 0, "token", 0.0]) for depth in (4, 8)]
        pairs.append((named[4, 15, "coupled", 0.0], named[4, 0, "coupled", 0.0]))
    return {
        "positions": len(next(iter(by_way.values()))),
        "acceptance_by_rank": by_rank,
        "best_trees": {
            name: {"parents": parents, "expected_accepted": expected_accepted(parents, first)}
            for name, parents in trees.items()
        },
        "contestants": summary(done),
        "differences": [{"ours": ours, "theirs": theirs, **difference(done, ours, theirs)} for ours, theirs in pairs],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=2)
    parser.add_argument("--stride", type=int, default=8, help="draft after every so many tokens of an answer")
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    target, draft = (
        load_model(reference, threads=arguments.threads, ctx_size=4096, resolver=locate)
        for reference in (arguments.target, arguments.draft)
    )
    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    results = {f"temperature {t:g}": examine(Pair(target, draft, t), prompts, arguments.stride) for t in (0.0, 1.0)}
    hand_in(
        arguments,
        QUESTION,
        {
            "target": arguments.target,
            "draft": arguments.draft,
            "threads": arguments.threads,
            "prompts": [asdict(prompt)["id"] for prompt in prompts],
            **results,
        },
    )


if __name__ == "__main__":
    main()
