"""Ratios of the counters; ``None`` where there is nothing to divide by."""

from __future__ import annotations

from outrider.metrics.counters import SpeculationCounters


def acceptance_rate(counters: SpeculationCounters) -> float | None:
    """Return accepted / drafted.

    Falls with the length of drafts, since a rejection also wastes the tokens after it; compare
    :func:`acceptance_prob`.
    """
    return _ratio(counters.num_accepted_tokens, counters.num_draft_tokens)


def mean_acceptance_length(counters: SpeculationCounters) -> float | None:
    """Return the mean number of tokens that a round with a draft emitted, recovered or bonus token included."""
    mean_accepted = _ratio(counters.num_accepted_tokens, counters.num_drafts)
    return None if mean_accepted is None else 1.0 + mean_accepted


def acceptance_prob(counters: SpeculationCounters) -> float | None:
    """Return the estimated chance that a tested draft token is accepted, the papers' alpha.

    The maximum-likelihood estimate if that chance is the same everywhere: accepted / (accepted + rejections), for the
    tokens after a rejection were never tested.
    """
    accepted = counters.num_accepted_tokens
    return _ratio(accepted, accepted + counters.num_rejections)


def _ratio(numerator: int, denominator: int) -> float | None:
    return numerator / denominator if denominator else None
