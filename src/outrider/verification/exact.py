"""Exact proofs: the law of what rounds emit, by enumerating every decision in rational arithmetic.

A rule is right if, for every draft and every context, the joint law of the tokens that successive rounds emit is the
target's. Here that law is computed, not estimated: the rule's own code runs once for every sequence of decisions that
it can meet, on laws that are arrays of :class:`fractions.Fraction`, and the two laws are compared for equality.

>>> target = lambda prefix: np.array([Fraction(1, 3), Fraction(2, 3)])
>>> drafted = lambda prefix: np.array([Fraction(2, 3), Fraction(1, 3)])
>>> from outrider.verification import verify_token
>>> emitted = emitted_law(speculative_round(target, dense_drafter(drafted, 2), verify_token), num_tokens=3)
>>> emitted == sequence_law(target, num_tokens=3)
True
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

import numpy as np

from outrider.types import Coins, Draft, Probs, TreeDraft, TreeResult, VerificationResult, Weights
from outrider.verification.law import as_array

Prefix = tuple[int, ...]
# The law of the next token given everything before it: [vocab_size] fractions.
Law = Callable[[Prefix], Probs]
Drafter = Callable[[Prefix, Coins], Draft]
Rule = Callable[[Draft, Probs, Coins], VerificationResult]
TreeDrafter = Callable[[Prefix, Coins], TreeDraft]
TreeRule = Callable[[TreeDraft, Probs, Coins], TreeResult]
# The tokens that one round emits after a prefix; at least one.
Round = Callable[[Prefix, Coins], Prefix]
SequenceLaw = dict[Prefix, Fraction]

_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)


def outcomes(experiment: Callable[[Coins], _H]) -> dict[_H, Fraction]:
    """Return the exact law of what an experiment returns, by running it once for every branch of its decisions."""
    law: dict[_H, Fraction] = defaultdict(Fraction)
    script: list[int] | None = []
    while script is not None:
        coins = _ScriptedCoins(script)
        result = experiment(coins)
        law[result] += coins.probability
        script = coins.next_script()
    return dict(law)


def speculative_round(target: Law, drafter: Drafter, rule: Rule) -> Round:
    """Return the round of speculative decoding: draft, score every draft position, verify."""

    def emit(prefix: Prefix, coins: Coins) -> Prefix:
        draft = drafter(prefix, coins)
        scored = np.array([target(prefix + draft.token_ids[:row]) for row in range(len(draft) + 1)])
        result = rule(draft, scored, coins)
        return (*draft.token_ids[: result.num_accepted], result.next_token_id)

    return emit


def tree_round(target: Law, drafter: TreeDrafter, rule: TreeRule) -> Round:
    """Return the round of speculative decoding with a tree: draft, score after every node, walk."""

    def emit(prefix: Prefix, coins: Coins) -> Prefix:
        draft = drafter(prefix, coins)
        paths: list[Prefix] = [()]
        for token_id, parent in zip(draft.token_ids, draft.parents, strict=True):
            paths.append((*paths[parent + 1], token_id))
        result = rule(draft, np.array([target(prefix + path) for path in paths]), coins)
        return (*(draft.token_ids[node] for node in result.path), result.next_token_id)

    return emit


def emitted_law(emit: Round, num_tokens: int, prefix: Prefix = ()) -> SequenceLaw:
    """Return the joint law of the first ``num_tokens`` tokens that as many rounds as it takes emit after ``prefix``."""
    law: SequenceLaw = defaultdict(Fraction)
    pending: SequenceLaw = {(): Fraction(1)}
    while pending:
        grown: SequenceLaw = defaultdict(Fraction)
        for tokens, probability in pending.items():
            for more, share in outcomes(partial(emit, prefix + tokens)).items():
                emitted = (tokens + more)[:num_tokens]
                (law if len(emitted) == num_tokens else grown)[emitted] += probability * share
        pending = grown
    return dict(law)


def sequence_law(target: Law, num_tokens: int, prefix: Prefix = ()) -> SequenceLaw:
    """Return the joint law of the next ``num_tokens`` tokens under plain decoding."""
    law: SequenceLaw = {(): Fraction(1)}
    for _ in range(num_tokens):
        law = {
            (*tokens, token_id): probability * share
            for tokens, probability in law.items()
            for token_id, share in enumerate(target(prefix + tokens))
            if share > 0
        }
    return law


def total_variation(one: dict[_H, Fraction], other: dict[_H, Fraction]) -> Fraction:
    """Return half the sum of the differences of two laws: 0 if they are equal, 1 if they share nothing."""
    return sum((abs(one.get(key, Fraction(0)) - other.get(key, Fraction(0))) for key in one | other), Fraction(0)) / 2


def dense_drafter(
    law: Law, max_tokens: int, goes_on: Callable[[Prefix, Probs], bool] = lambda _prefix, _probs: True
) -> Drafter:
    """Return a drafter that draws tokens from ``law`` and hands that law over.

    Args:
        law: Of the next draft token; need not resemble the target's.
        max_tokens: Stop after this many.
        goes_on: Whether to draw another token, given the prefix with the draft so far and the law of that token, the
            most that a stopping rule may look at.
    """

    def propose(prefix: Prefix, coins: Coins) -> Draft:
        token_ids: Prefix = ()
        laws: list[Probs] = []
        while len(token_ids) < max_tokens:
            probs = law(prefix + token_ids)
            if not goes_on(prefix + token_ids, probs):
                break
            token_ids = (*token_ids, coins.draw(probs))
            laws.append(probs)
        return Draft(token_ids, np.array(laws).reshape(len(laws), len(law(prefix))))

    return propose


def point_mass_drafter(choose: Callable[[Prefix], Sequence[int]]) -> Drafter:
    """Return a drafter that proposes the tokens ``choose`` names, drawing nothing."""
    return lambda prefix, _coins: Draft(tuple(choose(prefix)))


class _ScriptedCoins:
    """A ``Coins`` that takes the decisions of a script, then the first possible one each time."""

    def __init__(self, script: Sequence[int]) -> None:
        self.probability = Fraction(1)
        self._script = script
        self._taken: list[int] = []
        self._num_choices: list[int] = []

    def accept(self, numerator: Any, denominator: Any) -> bool:
        yes = Fraction(numerator > 0) if numerator >= denominator else Fraction(numerator) / denominator
        return self._choose([(True, yes), (False, 1 - yes)])

    def draw(self, weights: Weights) -> int:
        array = as_array(weights)
        total = sum(array)
        return self._choose([(index, Fraction(weight) / total) for index, weight in enumerate(array)])

    def next_script(self) -> list[int] | None:
        """Return the script of the next branch, depth first; None after the last."""
        for depth in reversed(range(len(self._taken))):
            if self._taken[depth] + 1 < self._num_choices[depth]:
                return [*self._taken[:depth], self._taken[depth] + 1]
        return None

    def _choose(self, choices: Sequence[tuple[_T, Fraction]]) -> _T:
        possible = [(value, probability) for value, probability in choices if probability > 0]
        depth = len(self._taken)
        index = self._script[depth] if depth < len(self._script) else 0
        self._taken.append(index)
        self._num_choices.append(len(possible))
        value, probability = possible[index]
        self.probability *= probability
        return value
