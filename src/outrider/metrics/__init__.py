"""What speculation did: counters, and the ratios people read."""

from outrider.metrics.counters import SourceCounts, SpeculationCounters
from outrider.metrics.summary import acceptance_prob, acceptance_rate, mean_acceptance_length

__all__ = ["SourceCounts", "SpeculationCounters", "acceptance_prob", "acceptance_rate", "mean_acceptance_length"]
