"""From logits to the law that tokens are drawn from."""

from outrider.sampling.distribution import greedy_token_ids, target_probs
from outrider.sampling.params import SamplingParams

__all__ = ["SamplingParams", "greedy_token_ids", "target_probs"]
