"""How far one engine's next-token laws are from the reference's: pure functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One engine against the reference, position by position.

    Attributes:
        kl: ``[positions]``, KL(reference || engine) in nats.
        same_top: ``[positions]``, whether both find the same token most likely.
    """

    kl: Array
    same_top: NDArray[np.bool_]

    def summary(self) -> dict[str, float | int]:
        """Return what is published of it."""
        return {
            "positions": len(self.kl),
            "mean_kl": float(self.kl.mean()),
            "median_kl": float(np.median(self.kl)),
            "p99_kl": float(np.quantile(self.kl, 0.99)),
            "top1_agreement": float(self.same_top.mean()),
        }


def log_softmax(logits: Floats) -> Array:
    """Return ``[..., vocab_size]`` log probabilities in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    law: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return law


def compare(reference: Floats, engine: Floats) -> Comparison:
    """Compare log probabilities, both ``[positions, vocab_size]``.

    Both are normalised again in float64, so that rounding at storage cannot make a divergence negative.
    """
    if reference.shape != engine.shape:
        raise ValueError(f"laws of shape {reference.shape} compared with laws of shape {engine.shape}")
    kl = np.empty(len(reference))
    for i, (row, other) in enumerate(zip(reference, engine, strict=True)):
        true_law, law = log_softmax(row), log_softmax(other)
        kl[i] = np.sum(np.exp(true_law) * (true_law - law))
    return Comparison(kl, reference.argmax(axis=-1) == engine.argmax(axis=-1))


def join(parts: list[Comparison]) -> Comparison:
    """Put the positions of several texts one after another."""
    return Comparison(np.concatenate([p.kl for p in parts]), np.concatenate([p.same_top for p in parts]))


def paired_difference(ours: Array, theirs: Array, rng: np.random.Generator, resamples: int = 2000) -> dict[str, float]:
    """Return mean(ours - theirs) over the same positions, with a 95 % bootstrap interval."""
    difference = ours - theirs
    picks = rng.integers(len(difference), size=(resamples, len(difference)))
    low, high = np.quantile(difference[picks].mean(axis=1), [0.025, 0.975])
    return {"mean": float(difference.mean()), "low": float(low), "high": float(high)}
