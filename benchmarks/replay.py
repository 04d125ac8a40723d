"""What do the controller's constants cost or gain? Replays recorded answers in seconds, at any costs.

    python -m benchmarks.recording --target T --drafts D --out RECORDING.jsonl
    python -m benchmarks.replay RECORDING.jsonl --draft D --out R.json
    python -m benchmarks.replay RECORDING.jsonl --draft D --set experience.SHARE=0.02 cascade._PRIOR_ROUNDS=4

The controller is the real one, and so are the lookups; a draft model's proposals are the recorded ones, cut where it is
told to stop. What a round costs is computed: passes by the curve below, reading the prompt included. So it says
nothing of the time outside the passes. The speeds are against plain decoding, by family, of the decoding alone.
``hindsight`` is no drafter but a bound: the fastest way through each answer for whoever knows which tokens of the model
or of the lookups, never both in a round, will be right, drafts no others, and has the prompt read for nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.provenance import add_output_arguments, hand_in
from benchmarks.recording import Proposed, Recorded, read_recording
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.types import Draft, Outcome, Verdict, VerificationResult

QUESTION = "Speed of fixed drafts, of each drafter alone under the controller, and of both, replayed"
VOCAB_SIZE = 1 << 20


class RecordedDrafter:
    """A draft model that proposes what was recorded, and counts what its passes would cost."""

    def __init__(self, name: str, answers: Sequence[Recorded], costs: PassCosts, *, is_useless: bool = False) -> None:
        self.name = name
        self.spent = 0.0
        self._answers = {answer.id: answer for answer in answers}
        self._costs = costs
        self._is_useless = is_useless
        self._cached: dict[Hashable, int] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See :meth:`outrider.drafters.base.Drafter.propose`."""
        return [self._propose(request) for request in requests]

    def observe(self, request_id: Hashable, result: Verdict) -> None:
        """What was accepted need not be read again."""
        self._cached[request_id] += max(0, result.num_accepted - 1)

    def release(self, request_id: Hashable) -> None:
        """Forget a request."""
        self._cached.pop(request_id, None)

    def _propose(self, request: DraftRequest) -> Draft:
        answer = self._answers[str(request.request_id)]
        length = len(request.context_ids)
        recorded = answer.drafts[self.name][length - len(answer.prompt_ids) - 1]
        count = _stopped(recorded, request)
        cached = self._cached.get(request.request_id, 0)
        self.spent += self._costs.reading(length - cached, context=cached) + (count - 1) * self._costs.at(1, length)
        self._cached[request.request_id] = length
        token_ids = recorded.token_ids[:count]
        if self._is_useless:
            token_ids = tuple(VOCAB_SIZE - 1 - token_id for token_id in token_ids)
        return Draft(token_ids, confidences=recorded.confidences[:count])


def _stopped(recorded: Proposed, request: DraftRequest) -> int:
    survival = 1.0
    for count, chance in enumerate(recorded.confidences[: request.max_tokens]):
        least = request.least_chances[count] if count < len(request.least_chances) else 0.0
        if count and survival < least:
            return count
        survival *= chance
    return min(len(recorded.token_ids), request.max_tokens)


@dataclass(slots=True)
class Total:
    """Tokens after the first of each answer, and what they cost."""

    tokens: int = 0
    cost: float = 0.0


def replay(answer: Recorded, drafter: Drafter | None, costs: PassCosts, *, longest: int, limit: int) -> Total:
    """Decode a recorded answer with a drafter; what the drafter itself costs is not in the total."""
    length, total = 1, Total()
    while length < len(answer.answer_ids):
        context, rest = [*answer.prompt_ids, *answer.answer_ids[:length]], answer.answer_ids[length:]
        draft = Draft(())
        room = min(longest, limit - length - 1)
        if drafter is not None and room > 0:
            request = DraftRequest(answer.id, context, room, None, None, num_remaining=limit - length)  # type: ignore[arg-type]
            (draft,) = drafter.propose([request])  # type: ignore[assignment]
        accepted = _num_right(draft.token_ids, rest[:-1])
        if drafter is not None and len(draft):
            outcome = Outcome.BONUS if accepted == len(draft) else Outcome.RECOVERED
            drafter.observe(answer.id, VerificationResult(accepted, rest[accepted], outcome))
        total.cost += costs.at(1 + len(draft), len(context))
        total.tokens += accepted + 1
        length += accepted + 1
    if drafter is not None:
        drafter.release(answer.id)
    return total


def hindsight(answer: Recorded, draft: str, costs: PassCosts, draft_costs: PassCosts) -> Total:
    """Return the least that an answer can cost with chains of right tokens of a model or of what is looked up."""
    answer_ids, prompt_ids = answer.answer_ids, answer.prompt_ids
    last = len(answer_ids)
    least = [0.0] * (last + 1)  # that what follows so many tokens costs
    lookups = NgramDrafter(costs=costs)
    for length in range(last - 1, 0, -1):
        context = [*prompt_ids, *answer_ids[:length]]
        request = DraftRequest(answer.id, context, 64, None, None)  # type: ignore[arg-type]
        found = lookups.propose([request])[0].token_ids
        lookups.release(answer.id)
        ways = []
        for token_ids, token_cost in (((), 0.0), (found, 0.0), (answer.drafts[draft][length - 1].token_ids, 1.0)):
            right = _num_right(token_ids, answer_ids[length : last - 1])
            for count in range(right + 1):
                drafting = token_cost * count * draft_costs.at(1, len(context))
                ways.append(drafting + costs.at(1 + count, len(context)) + least[length + count + 1])
        least[length] = min(ways)
    return Total(last - 1, least[1])


def _num_right(token_ids: Sequence[int], wanted: Sequence[int]) -> int:
    count = 0
    while count < min(len(token_ids), len(wanted)) and token_ids[count] == wanted[count]:
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("recording", type=Path)
    parser.add_argument("--draft", required=True, help="one of the recorded draft models")
    parser.add_argument("--token-cost", type=float, default=0.3, help="of a pass of the draft, in passes of the target")
    parser.add_argument("--piece-cost", type=float, default=9.0, help="of reading 256 tokens, in passes of the target")
    parser.add_argument("--limit", type=int, default=128, help="max_tokens of the recorded requests")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 4, 6, 8])
    parser.add_argument("--set", nargs="+", default=[], metavar="MODULE.NAME=NUMBER", help="of outrider.drafters")
    add_output_arguments(parser)
    arguments = parser.parse_args()
    for setting in arguments.set:
        place, value = setting.split("=")
        module, name = place.split(".")
        setattr(import_module(f"outrider.drafters.{module}"), name, float(value))
    answers = [answer for answer in read_recording(arguments.recording) if len(answer.answer_ids) > 1]
    costs = PassCosts()
    scale = arguments.token_cost
    draft_costs = PassCosts(((1, scale), (8, 1.3 * scale), (256, arguments.piece_cost)))
    ways = _ways(arguments.draft, answers, costs, draft_costs, arguments.lengths)
    families = ["all", *dict.fromkeys(answer.family for answer in answers)]
    speeds = {name: _speeds(make, answers, costs, families, arguments.limit) for name, make in ways.items()}
    bounds = [(answer.family, hindsight(answer, arguments.draft, costs, draft_costs)) for answer in answers]
    speeds["hindsight"] = {
        family: sum(one.tokens for own, one in bounds if family in ("all", own))
        / sum(one.cost for own, one in bounds if family in ("all", own))
        for family in families
    }
    print("".ljust(14), *(family[:9].rjust(9) for family in families))
    for name, speed in speeds.items():
        print(name.ljust(14), *(f"{speed[family]:9.3f}" for family in families))
    singles = [name for name in speeds if name.startswith("fixed") or name in ("model", "ngram")]
    to_best = {family: speeds["both"][family] / max(speeds[name][family] for name in singles) for family in families}
    print("both to best".ljust(14), *(f"{to_best[family]:9.3f}" for family in families))
    hand_in(arguments, QUESTION, {"settings": arguments.set, "speeds": speeds, "both_to_best": to_best})


def _ways(
    draft: str, answers: Sequence[Recorded], costs: PassCosts, draft_costs: PassCosts, lengths: Sequence[int]
) -> dict[str, Callable[[], tuple[Drafter, RecordedDrafter | None, int]]]:
    def model(**options: bool) -> RecordedDrafter:
        return RecordedDrafter(draft, answers, draft_costs, **options)

    def controlled(one: RecordedDrafter | None, *, looks_up: bool) -> tuple[Drafter, RecordedDrafter | None, int]:
        members = [] if one is None else [Member(one, draft_costs, 12)]
        members += [Member(NgramDrafter(costs=costs))] if looks_up else []
        return CascadeDrafter(members, vocab_size=2 * VOCAB_SIZE, costs=costs), one, 64

    def fixed(length: int) -> Callable[[], tuple[Drafter, RecordedDrafter | None, int]]:
        def make() -> tuple[Drafter, RecordedDrafter | None, int]:
            one = model()
            return one, one, length

        return make

    return {
        **{f"fixed {length}": fixed(length) for length in lengths},
        "model": lambda: controlled(model(), looks_up=False),
        "ngram": lambda: controlled(None, looks_up=True),
        "both": lambda: controlled(model(), looks_up=True),
        "useless": lambda: controlled(model(is_useless=True), looks_up=False),
        "useless both": lambda: controlled(model(is_useless=True), looks_up=True),
    }


def _speeds(
    make: Callable[[], tuple[Drafter, RecordedDrafter | None, int]],
    answers: Sequence[Recorded],
    costs: PassCosts,
    families: Sequence[str],
    limit: int,
) -> dict[str, float]:
    """Return tokens by cost, against plain decoding's one; the answers in the order of their families taking turns."""
    drafter, model, longest = make()
    totals = {family: Total() for family in families}
    for answer in _taking_turns(answers):
        before = 0.0 if model is None else model.spent
        one = replay(answer, drafter, costs, longest=longest, limit=limit)
        drafting = 0.0 if model is None else model.spent - before
        for family in ("all", answer.family):
            totals[family].tokens += one.tokens
            totals[family].cost += one.cost + drafting
    return {family: total.tokens / total.cost for family, total in totals.items()}


def _taking_turns(answers: Sequence[Recorded]) -> list[Recorded]:
    families: dict[str, list[Recorded]] = {}
    for answer in answers:
        families.setdefault(answer.family, []).append(answer)
    longest = max(map(len, families.values()))
    return [group[turn] for turn in range(longest) for group in families.values() if turn < len(group)]


if __name__ == "__main__":
    main()
