"""Draws dealt from the enumerated rounds of a toy engine, and counted, a thousand at a time.

What is counted is what :class:`outrider.audit.tally.Counter` counts of the same draws one by one, which takes far
longer; tests/audit/test_power.py holds the one against the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.audit_toy import DRAFT_TOKENS, VOCAB_SIZE, Outcome, Toy
from outrider.audit.acceptance import decisions
from outrider.audit.cells import DirectedOrder, PrefixLaws
from outrider.audit.draws import Draw, Round
from outrider.audit.sequential import NUM_BINS
from outrider.audit.tally import ACCEPTANCES, Counter, Tally

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
NOTHING = -1
_EMITTED = DRAFT_TOKENS + 1  # of a round, at most


@dataclass(frozen=True, slots=True)
class Dealt:
    """Some draws; what is not there is ``NOTHING``.

    Attributes:
        tokens: ``[draws, most tokens]``.
        starts, depths, accepted: ``[draws, most rounds]``: tokens before a round, drafted in it, and accepted.
        outcomes: ``[draws, most rounds]``: which of the outcomes of rounds each was.
    """

    tokens: Ints
    starts: Ints
    depths: Ints
    accepted: Ints
    outcomes: Ints


class Rounds:
    """What rounds may do: of an engine, and of one that is wrong at every refusal.

    Args:
        right, wrong: The engines.
        num_tokens: Of a draw.
        full_every: Every so manieth draw has room for whole drafts.
    """

    def __init__(self, right: Toy, wrong: Toy, num_tokens: int, full_every: int) -> None:
        self.method, self.num_tokens = right.method, num_tokens
        self.outcomes: list[Outcome] = []
        self._full_every = full_every
        self._places: dict[int, Place] = {}
        sums, ends = [], []
        for number, (room, toy, last) in enumerate(product(range(DRAFT_TOKENS + 1), (right, wrong), range(VOCAB_SIZE))):
            found, shares = toy.law(last, room)
            self.outcomes += found
            sums.append(number + np.array(shares))  # laws side by side on a line, each of them one long
            ends.append(len(self.outcomes) - 1)
        self._sums, self._ends = np.concatenate(sums), np.array(ends)
        self._depths = np.array([draft.depth for draft, _ in self.outcomes])
        self._counts = np.array([len(emitted) for _, emitted in self.outcomes])
        self._emitted = np.full((len(self.outcomes), _EMITTED), NOTHING)
        for row, (_, emitted) in zip(self._emitted, self.outcomes, strict=True):
            row[: len(emitted)] = emitted

    def deal(self, last: int, numbers: Ints, share: float, rng: np.random.Generator) -> Dealt:
        """Deal draws after a token, wrong in a share of the refusals.

        A round has one refusal at most: so it is dealt from the wrong engine with that chance.

        Args:
            last: The token.
            numbers: ``[draws]``; say which have room for whole drafts.
            share: Of the refusals.
            rng: Decides.
        """
        num, most = len(numbers), self.num_tokens
        is_full = numbers % self._full_every == 0
        tokens = np.full((num, most + DRAFT_TOKENS), NOTHING)
        dealt = Dealt(tokens, *(np.full((num, most), NOTHING) for _ in range(4)))
        length, before = np.zeros(num, dtype=np.int64), np.full(num, last)
        for number in range(most):
            going = np.flatnonzero(length < most)
            start = length[going]
            room = np.where(is_full[going], DRAFT_TOKENS, np.minimum(DRAFT_TOKENS, most - start - 1))
            law = (2 * room + (rng.random(len(going)) < share)) * VOCAB_SIZE + before[going]
            found = np.searchsorted(self._sums, law + rng.random(len(going)), side="right")
            outcome = np.minimum(found, self._ends[law])
            count, emitted = self._counts[outcome], self._emitted[outcome]
            is_there = emitted != NOTHING
            tokens[np.repeat(going, count), (start[:, np.newaxis] + np.arange(_EMITTED))[is_there]] = emitted[is_there]
            dealt.starts[going, number], dealt.outcomes[going, number] = start, outcome
            dealt.depths[going, number], dealt.accepted[going, number] = self._depths[outcome], count - 1
            before[going] = emitted[np.arange(len(going)), count - 1]
            length[going] += count
        return dealt

    def place(self, last: int, laws: PrefixLaws, order: DirectedOrder, num_draws: int) -> Place:
        """Return what draws after a token are counted by, which is the same in every audit."""
        if last not in self._places:
            self._places[last] = Place(self, last, laws, order, num_draws)
        return self._places[last]

    def first_outcomes(self, last: int) -> Iterator[int]:
        """Yield the outcomes of a draw's first round after a token, of both engines."""
        room = min(DRAFT_TOKENS, self.num_tokens - 1)
        for law in (2 * room * VOCAB_SIZE + last, (2 * room + 1) * VOCAB_SIZE + last):
            yield from range(self._ends[law - 1] + 1 if law else 0, self._ends[law] + 1)

    def draws(self, dealt: Dealt) -> Iterator[Draw]:
        """Yield the same draws one by one, as an audit knows them."""
        for tokens, starts, outcomes in zip(dealt.tokens, dealt.starts, dealt.outcomes, strict=True):
            rounds = []
            for start, number in zip(starts.tolist(), outcomes.tolist(), strict=True):
                if number != NOTHING:
                    draft, emitted = self.outcomes[number]
                    rounds.append(Round(start, draft, len(emitted) - 1))
            yield Draw(tuple(tokens[tokens != NOTHING].tolist()), tuple(rounds), self.method)


class Place:
    """What draws after a token are counted by, taken from what counts them one by one.

    Args:
        rounds: That they are dealt from.
        last: The token.
        laws, order, num_draws: See :class:`~outrider.audit.tally.Counter`.
    """

    def __init__(self, rounds: Rounds, last: int, laws: PrefixLaws, order: DirectedOrder, num_draws: int) -> None:
        self.last = last
        self.counter = Counter(laws, rounds.num_tokens, num_draws, order, np.random.default_rng(0))
        letters = range(VOCAB_SIZE)
        shape = (VOCAB_SIZE,) * rounds.num_tokens
        self.first = np.array([self.counter.first.cell((one,)) for one in letters])
        self.joint = np.array([self.counter.joint.cell(tokens) for tokens in np.ndindex(shape)]).reshape(shape)
        # By the token before, which is all that the toy looks at: what comes first in its law, and its own share.
        self.stretches = np.array([[laws.stretch((before,), one) for one in letters] for before in letters])
        self.directed = np.array([order.stretch(one) for one in letters])
        # By outcome of a first round and depth: decisions, accepted ones and their chances.
        self.rates = np.zeros((len(rounds.outcomes), DRAFT_TOKENS + 1, 3))
        for number in rounds.first_outcomes(last):
            draft, emitted = rounds.outcomes[number]
            draw = Draw(emitted, (Round(0, draft, len(emitted) - 1),), rounds.method)
            for depth, was_accepted, chance in decisions(draw, laws):
                self.rates[number, depth] += 1, was_accepted, chance


class BulkCounter:
    """Counts many draws at a time.

    Args:
        place: Where they are made.
        rounds: That they are dealt from.
        rng: Where in its stretch of the line each token is put.
    """

    def __init__(self, place: Place, rounds: Rounds, rng: np.random.Generator) -> None:
        self._place, self._rounds, self._rng = place, rounds, rng
        first, joint = place.counter.tally.first[1], place.counter.tally.joint[1]
        self.tally = Tally(([0] * len(first), first), ([0] * len(joint), joint))

    def add(self, dealt: Dealt) -> None:
        """Count draws."""
        self.add_at(dealt, self._rng.random(len(dealt.tokens)), self._rng.random(dealt.tokens.shape))

    def add_at(self, dealt: Dealt, in_first: Floats, in_each: Floats) -> None:
        """Count draws.

        Args:
            dealt: The draws.
            in_first: ``[draws]``, from [0, 1): where in its stretch the first token is put, in the directed order.
            in_each: ``[draws, most tokens]``: the same of every token, in the order of the law.
        """
        tally, place, tokens, num_tokens = self.tally, self._place, dealt.tokens, self._rounds.num_tokens
        left = max(0, ACCEPTANCES - tally.num)
        _add(tally.first[0], place.first[tokens[:, 0]])
        _add(tally.joint[0], place.joint[tuple(tokens[:, :num_tokens].T)])
        _add(tally.directed, _bins(place.directed[tokens[:, 0]], in_first))
        is_there = tokens != NOTHING
        before = np.column_stack([np.full(len(tokens), place.last), tokens[:, :-1]])
        stretches = place.stretches[before, tokens]
        bins = _bins(stretches, in_each)
        asked = is_there[:, :num_tokens]
        _add(tally.every, bins[:, :num_tokens][asked])
        tally.tokens += int(asked.sum())
        tally.impossible += int((stretches[is_there][:, 1] <= 0).sum())
        for depth, count in _counted(dealt.depths):
            tally.drafted[str(depth)] = tally.drafted.get(str(depth), 0) + count
        self._add_strata(dealt, bins)
        rates = self._place.rates[dealt.outcomes[:left, 0]].sum(axis=0)
        for depth in np.flatnonzero(rates[:, 0]).tolist():
            num, observed, expected = tally.rates.get(str(depth), (0, 0, 0.0))
            more = rates[depth].tolist()
            tally.rates[str(depth)] = (num + int(more[0]), observed + int(more[1]), expected + more[2])

    def _add_strata(self, dealt: Dealt, bins: Ints) -> None:
        """Count what was emitted after something happened, by what; see ``_strata`` in :mod:`outrider.audit.tally`."""
        for number in range(dealt.starts.shape[1]):
            is_round = dealt.starts[:, number] != NOTHING
            for count in range(_EMITTED):
                if number == count == 0:
                    continue
                emitted = np.flatnonzero(is_round & (dealt.accepted[:, number] >= count))
                at = bins[emitted, dealt.starts[emitted, number] + count]
                is_bonus = (dealt.depths[emitted, number] == count) & (count > 0)
                self._add_stratum("after a draft that was accepted whole", at[is_bonus])
                if count > 0 and self._rounds.method != "block":
                    self._add_stratum(f"after {count} accepted, within a round", at[~is_bonus])
                for accepted in range(_EMITTED) if count == 0 else ():
                    after = dealt.accepted[emitted, number - 1] == accepted
                    self._add_stratum(f"after a round that accepted {accepted}", at[after])

    def _add_stratum(self, name: str, bins: Ints) -> None:
        if len(bins):
            _add(self.tally.strata.setdefault(name, [0] * NUM_BINS), bins)


def _add(counts: list[int], cells: Ints) -> None:
    counts[:] = (np.array(counts) + np.bincount(cells, minlength=len(counts))).tolist()


def _bins(stretches: Floats, uniform: Floats) -> Ints:
    """Return the bins of tokens; see :func:`outrider.audit.sequential.place`."""
    at = stretches[..., 0] + uniform * stretches[..., 1]
    return np.minimum(NUM_BINS - 1, (at * NUM_BINS).astype(np.int64))


def _counted(depths: Ints) -> Iterator[tuple[int, int]]:
    for depth, count in enumerate(np.bincount(depths[depths != NOTHING]).tolist()):
        if count:
            yield depth, count
