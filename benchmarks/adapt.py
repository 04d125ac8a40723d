"""Is `--draft auto` ever slower than plain decoding, or than the best fixed choice? And what does a useless draft cost?

    python -m benchmarks.adapt --target T --draft D --out R.json

Greedy; plain, auto, the draft model with each fixed length, lookups alone, and a draft model that is always wrong under
the controller, which take turns on every prompt, ``--rounds`` times. Of several answers to a prompt by one of them that
of the median speed counts, for a shared machine's memory may be a third slower a second later. ``--per-family`` sizes
it: one prompt of each family, answered once, takes a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from benchmarks.contestants import CONTEXT, PLAIN, tell
from benchmarks.models import locate
from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.texts import PROMPTS, pick, read_prompts
from outrider import LLM
from outrider.drafters.base import Drafter, DraftRequest
from outrider.engine.combining import combine
from outrider.engine.contestant import Outrider
from outrider.engine.loading import Model, Part, attach, load_draft, load_model, with_passes
from outrider.metrics.paired import Answer, Turn, by_family, summary, take_turns, total_rate
from outrider.models.vocabularies import Relation
from outrider.types import Draft, Proposal, Verdict

QUESTION = "Speed of auto by plain decoding's and by the best fixed choice's, and what a useless draft costs"
AUTO, LOOKUP, USELESS = "auto", "ngram", "useless"


class AlwaysWrong:
    """A draft model at its full cost, each of whose tokens is replaced by another."""

    name = USELESS

    def __init__(self, drafter: Drafter, vocab_size: int) -> None:
        self._drafter, self._vocab_size = drafter, vocab_size

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        """See :meth:`outrider.drafters.base.Drafter.propose`; greedy requests only."""
        return [self._spoilt(draft) for draft in self._drafter.propose(requests)]

    def observe(self, request_id: object, result: Verdict) -> None:
        """Nothing to learn."""

    def release(self, request_id: object) -> None:
        """Forget a request."""
        self._drafter.release(request_id)

    def _spoilt(self, draft: Proposal) -> Proposal:
        wrong = tuple((token_id + 7) % self._vocab_size for token_id in draft.token_ids)
        return replace(draft, token_ids=wrong) if isinstance(draft, Draft) else draft


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft", required=True, help="for the fixed choices, and to be made useless")
    parser.add_argument("--prompts", type=Path, default=PROMPTS)
    parser.add_argument("--per-family", type=int, default=3)
    parser.add_argument("--num-tokens", type=int, default=128)
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    add_output_arguments(parser)
    arguments = parser.parse_args()
    model = load_model(arguments.target, threads=arguments.threads, ctx_size=CONTEXT, resolver=locate)
    contestants = load(model, arguments.draft, arguments.lengths, arguments.threads)
    fixed = [one.name for one in contestants if one.name not in (PLAIN, AUTO, USELESS)]
    prompts = pick(read_prompts(arguments.prompts), arguments.per_family)
    turns = take_turns(contestants, prompts, repeats=arguments.rounds, num_tokens=arguments.num_tokens, tell=tell)
    families = {"all": turns, **by_family(turns)}
    results = {
        "target": arguments.target,
        "draft": arguments.draft,
        "threads": arguments.threads,
        "num_tokens": arguments.num_tokens,
        "auto_to_plain": {family: ratio(own, AUTO, [PLAIN]) for family, own in families.items()},
        "auto_to_best_fixed": {family: ratio(own, AUTO, [PLAIN, *fixed]) for family, own in families.items()},
        "useless_to_plain": {family: ratio(own, USELESS, [PLAIN]) for family, own in families.items()},
        "families": {family: summary(own, PLAIN) for family, own in families.items()},
    }
    hand_in(arguments, QUESTION, results)


def load(model: Model, draft: str, lengths: Sequence[int], threads: int) -> list[Outrider]:
    """Load all who take part; a drafter that is handed in by itself is asked in every round for all of its length."""
    draft_model, relation = load_draft(draft, model, threads=threads, resolver=locate)
    contestants: list[Outrider] = [
        Outrider(PLAIN, LLM(model)),
        Outrider(AUTO, LLM(model, AUTO, threads=threads, resolver=locate)),
        Outrider(LOOKUP, LLM(model, LOOKUP)),
    ]
    contestants += [
        Outrider(f"draft {length}", LLM(model, attach(draft_model, model, relation), num_speculative_tokens=length))
        for length in lengths
    ]
    return [
        *contestants,
        Outrider(USELESS, LLM(model, useless(draft_model, model, relation), num_speculative_tokens=12)),
    ]


def useless(draft_model: Model, target: Model, relation: Relation) -> Drafter:
    """Return a useless draft model under the controller, as a user gets one."""
    noted, passes = with_passes(draft_model, perf_counter)
    wrong = AlwaysWrong(attach(noted, target, relation), target.vocab_size)
    part = Part(wrong, draft_model.backend, is_ours=True, passes=passes)
    drafter = combine([part], target, store=None, max_model_tokens=None, clock=perf_counter)
    assert drafter is not None
    return drafter


def ratio(turns: Sequence[Turn], name: str, others: Sequence[str]) -> float:
    """Return the total rate of one, by that of the best of others."""
    prompts: dict[str, list[Turn]] = {}
    for turn in turns:
        if turn.is_rated:
            prompts.setdefault(turn.prompt.id, []).append(turn)
    rates = {
        one: total_rate([median_answer([turn.answers[one] for turn in own]) for own in prompts.values()])
        for one in (name, *others)
    }
    return rates[name] / max(rates[other] for other in others)


def median_answer(answers: Sequence[Answer]) -> Answer:
    """Return the answer of the median speed; of an even number, the slower of the two."""
    return sorted(answers, key=lambda answer: answer.tokens_per_s)[(len(answers) - 1) // 2]


if __name__ == "__main__":
    main()
