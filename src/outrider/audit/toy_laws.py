"""Exact laws for the proofs: published examples, and context-dependent models with and without impossible tokens."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from outrider.backends.toy import HashLM, exact_probs
from outrider.types import Probs
from outrider.verification.exact import Law, Prefix


def row(*weights: int | str) -> Probs:
    """Return whole-numbered weights, or decimal strings, as a law of fractions."""
    fractions = [Fraction(weight) for weight in weights]
    return np.array([fraction / sum(fractions) for fraction in fractions], dtype=object)


def fixed(*weights: int | str) -> Law:
    """Return a law that ignores its context."""
    return lambda _prefix: row(*weights)


def after_each(first: Sequence[int], *after: Sequence[int]) -> Law:
    """Return a law that depends on the last token of the round, for tables such as the published ones."""
    return lambda prefix: row(*(after[prefix[-1]] if prefix else first))


def hashed(vocab_size: int, seed: int, *, zeros: bool = False) -> Law:
    """Return a law that depends on everything before the token."""
    model = HashLM(vocab_size, seed, min_weight=0 if zeros else 1, max_weight=3 if zeros else 7)
    return lambda prefix: exact_probs(model, prefix)


def restricted(law: Law, allowed: Sequence[int]) -> Law:
    """Return ``law`` on some tokens only, renormalised: a cut head, or a vocabulary shared in part."""

    def conditioned(prefix: Prefix) -> Probs:
        probs = law(prefix)
        kept = np.array([probs[token_id] if token_id in allowed else Fraction(0) for token_id in range(len(probs))])
        renormalised: Probs = kept / kept.sum()
        return renormalised

    return conditioned


def padded(law: Law, vocab_size: int) -> Law:
    """Return ``law`` with zeros for the ids that only the other model's vocabulary has."""

    def widened(prefix: Prefix) -> Probs:
        probs = law(tuple(token_id for token_id in prefix if token_id < len(law(()))))
        return np.concatenate([probs, [Fraction(0)] * (vocab_size - len(probs))])

    return widened


# Example D of the multi-draft literature's toys: a target law and the same in reverse order.
TARGET_D, DRAFT_D = fixed(4, 3, 2, 1), fixed(1, 2, 3, 4)

# (target, draft), vocabulary 3 or 4, every context with a law of its own.
PAIRS: dict[str, tuple[Law, Law]] = {
    "unlike": (hashed(3, 1), hashed(3, 2)),
    "impossible tokens": (hashed(3, 3, zeros=True), hashed(3, 4, zeros=True)),
    "four tokens": (hashed(4, 5), hashed(4, 6, zeros=True)),
    "draft is the target": (hashed(3, 7, zeros=True), hashed(3, 7, zeros=True)),
    "disjoint supports": (restricted(hashed(4, 8), (0, 1)), restricted(hashed(4, 9), (2, 3))),
    "draft of two tokens only": (hashed(3, 10), restricted(hashed(3, 11), (0, 2))),
    "draft vocabulary padded": (hashed(4, 12), padded(hashed(3, 13), 4)),
    "target vocabulary padded": (padded(hashed(3, 14), 4), hashed(4, 15)),
    "certain target": (fixed(0, 1, 0), hashed(3, 16)),
    "certain draft": (hashed(3, 17), fixed(0, 0, 1)),
    "context-free": (fixed(5, 3, 2), fixed(2, 3, 5)),
}
