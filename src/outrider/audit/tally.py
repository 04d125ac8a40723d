"""What is counted of the draws at one prefix, and the evidence that all prefixes make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.audit.acceptance import decisions
from outrider.audit.cells import CellTree, DirectedOrder, PrefixLaws, draws_of
from outrider.audit.draws import Draw
from outrider.audit.evidence import Course, Equality, Evidence, Fit, Rate
from outrider.audit.sequential import NUM_BINS, place
from outrider.audit.statistics import Cells, pooled

FIRST, DIRECTED, EVERY = "first token", "first token, in the order of what the draft likes", "every token"
IMPOSSIBLE, COURSES = "tokens that the target excludes", ("first token, at any time", "every token, at any time")
_CELLS = 8
_LEAST_EXPECTED = 40.0  # draws of a cell of its own
ACCEPTANCES = 1000  # draws of a prefix whose acceptance is predicted: each takes some passes over two laws
_EXACT_BINS = [1 / NUM_BINS] * NUM_BINS
Bins = list[int]


def joint_name(num_tokens: int) -> str:
    """Return the name of the evidence on the tokens of a draw together."""
    return f"next {num_tokens} tokens together"


@dataclass(slots=True)
class Tally:
    """Counts of the draws at one prefix; see :func:`evidence_of` for what each is for.

    Attributes:
        first, joint: Counts and probabilities of cells.
        directed, every: Counts by bins, which are equally likely.
        strata: Counts by bins of the tokens that were emitted after something happened, by what.
        rates: By depth: decisions on draft tokens, accepted ones, and the sum of their chances.
        drafted: How many rounds drafted how many tokens after one another, by that number.
        tokens, impossible: How many tokens were drawn, and how many of them cannot have been.
        at_checkpoints: ``directed`` and ``every`` each time that the sequential test was looked at.
    """

    first: tuple[list[int], list[float]]
    joint: tuple[list[int], list[float]]
    directed: Bins = field(default_factory=lambda: [0] * NUM_BINS)
    every: Bins = field(default_factory=lambda: [0] * NUM_BINS)
    strata: dict[str, Bins] = field(default_factory=dict)
    rates: dict[str, tuple[int, int, float]] = field(default_factory=dict)
    drafted: dict[str, int] = field(default_factory=dict)
    tokens: int = 0
    impossible: int = 0
    at_checkpoints: list[tuple[Bins, Bins]] = field(default_factory=list)

    @property
    def num(self) -> int:
        """How many draws there are."""
        return sum(self.first[0])

    def checkpoint(self) -> None:
        """Let the sequential test look."""
        self.at_checkpoints.append((list(self.directed), list(self.every)))


class Counter:
    """Counts the draws at one prefix.

    Args:
        laws: The target's.
        num_tokens: Of a draw.
        num_draws: That there will be at most.
        order: Of first tokens.
        rng: Where in its stretch of the line each token is put.

    Attributes:
        first, joint: The cells of the first token, and of all that were asked for.
        tally: What has been counted.
    """

    def __init__(
        self, laws: PrefixLaws, num_tokens: int, num_draws: int, order: DirectedOrder, rng: np.random.Generator
    ) -> None:
        least = min(1.0, _LEAST_EXPECTED / num_draws)
        self._laws, self._order, self._uniform, self._num_tokens = laws, order, draws_of(rng), num_tokens
        self.first = CellTree(laws, 1, _CELLS, least)
        self.joint = CellTree(laws, num_tokens, _CELLS, least)
        first, joint = (([0] * len(tree.probs), list(tree.probs)) for tree in (self.first, self.joint))
        self.tally = Tally(first, joint)

    def add(self, draw: Draw) -> None:
        """Count a draw."""
        tally = self.tally
        tally.first[0][self.first.cell(draw.token_ids)] += 1
        tally.joint[0][self.joint.cell(draw.token_ids)] += 1
        tally.directed[self._order.bin(draw.token_ids[0], next(self._uniform))] += 1
        bins = []
        for position, token_id in enumerate(draw.token_ids):
            before, prob = self._laws.stretch(draw.token_ids[:position], token_id)
            bins.append(place(before, prob, next(self._uniform)))
            tally.impossible += prob <= 0
            if position < self._num_tokens:  # how many more there are may depend on what they are
                tally.tokens += 1
                tally.every[bins[-1]] += 1
        for one in draw.rounds:
            length = str(one.draft.depth)
            tally.drafted[length] = tally.drafted.get(length, 0) + 1
        for position, name in _strata(draw):
            tally.strata.setdefault(name, [0] * NUM_BINS)[bins[position]] += 1
        if tally.num <= ACCEPTANCES:
            for depth, was_accepted, chance in decisions(draw, self._laws):
                num, observed, expected = tally.rates.get(str(depth), (0, 0, 0.0))
                tally.rates[str(depth)] = (num + 1, observed + was_accepted, expected + chance)


def _strata(draw: Draw) -> list[tuple[int, str]]:
    """Return tokens whose law is the target's even given all that was decided before, each with what that was.

    Under block verification whether a token is accepted depends on those after it, so only a round's first token and
    its bonus token are such; under every other rule all tokens of a round are, one after the other.
    """
    named = []
    for number, one in enumerate(draw.rounds):
        for count in range(one.num_accepted + 1):
            position = one.start + count
            if position >= len(draw.token_ids) or (number == 0 and count == 0):  # the first token has tests of its own
                continue
            is_bonus = count == one.draft.depth > 0
            if is_bonus:
                named.append((position, "after a draft that was accepted whole"))
            elif count == 0:
                named.append((position, f"after a round that accepted {draw.rounds[number - 1].num_accepted}"))
            elif draw.method != "block":
                named.append((position, f"after {count} accepted, within a round"))
    return named


def evidence_of(tallies: Sequence[Tally], num_tokens: int) -> tuple[Evidence, ...]:
    """Return what the tallies of all prefixes come to; what nothing was seen of is left out."""
    tokens, impossible = sum(tally.tokens for tally in tallies), sum(tally.impossible for tally in tallies)
    evidence: list[Evidence] = [
        Equality(IMPOSSIBLE, tokens, impossible),
        Fit(FIRST, tuple(pooled(*tally.first) for tally in tallies)),
        Fit(joint_name(num_tokens), tuple(pooled(*tally.joint) for tally in tallies)),
        Fit(DIRECTED, (_bins([tally.directed for tally in tallies]),)),
        Fit(EVERY, (_bins([tally.every for tally in tallies]),)),
    ]
    for name in sorted({name for tally in tallies for name in tally.strata}):
        seen = [tally.strata[name] for tally in tallies if name in tally.strata]
        evidence.append(Fit(name, (_bins(seen),)))
    for depth in sorted({depth for tally in tallies for depth in tally.rates}):
        nums, observed, expected = zip(*(tally.rates.get(depth, (0, 0, 0.0)) for tally in tallies), strict=True)
        evidence.append(Rate(f"draft token {depth} accepted", sum(nums), sum(observed), sum(expected)))
    return (*evidence, *courses_of(tallies))


def drafted(tallies: Sequence[Tally]) -> dict[str, int]:
    """Return how many rounds drafted how many tokens, by that number, the smallest first."""
    depths = sorted({int(depth) for tally in tallies for depth in tally.drafted})
    return {str(depth): sum(tally.drafted.get(str(depth), 0) for tally in tallies) for depth in depths}


def courses_of(tallies: Sequence[Tally]) -> tuple[Course, Course]:
    """Return the courses of the sequential test, over the prefixes in turn."""
    before = np.zeros((2, NUM_BINS), dtype=np.int64)
    looks: list[list[list[int]]] = []
    for tally in tallies:
        looks += (before + np.array(tally.at_checkpoints, dtype=np.int64).reshape(-1, 2, NUM_BINS)).tolist()
        before = before + np.array([tally.directed, tally.every])
    first, every = (tuple(tuple(look[which]) for look in looks) for which in (0, 1))
    return Course(COURSES[0], first), Course(COURSES[1], every)


def _bins(counted: Sequence[Bins]) -> Cells:
    return pooled(np.sum(counted, axis=0), _EXACT_BINS, most_cells=NUM_BINS)
