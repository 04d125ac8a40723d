"""From logits to the law that tokens are drawn from, and what a caller may say about it."""

from outrider.sampling.compiled import CompiledParams, compile_params
from outrider.sampling.distribution import greedy_token_ids, target_probs, token_law
from outrider.sampling.params import SamplingParams
from outrider.sampling.shaper import LawShaper
from outrider.sampling.target_law import TargetLaw, TokenLogprobs
from outrider.sampling.vocabulary import Vocabulary

__all__ = [
    "CompiledParams",
    "LawShaper",
    "SamplingParams",
    "TargetLaw",
    "TokenLogprobs",
    "Vocabulary",
    "compile_params",
    "greedy_token_ids",
    "target_probs",
    "token_law",
]
