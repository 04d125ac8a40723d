"""The target's law at every position of a round, as whoever verifies or reports needs it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from outrider.sampling.distribution import Ids, greedy_token_ids, target_probs
from outrider.sampling.params import SamplingParams
from outrider.types import Logits, Probs

_PLAIN = SamplingParams(temperature=1.0)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """How likely a token was where it stands.

    Attributes:
        logprob: The natural logarithm of its probability; minus infinity if it was impossible, as a token of a prompt
            can be.
        top: The most likely tokens there and their log probabilities, as many as were asked for but none that was
            impossible; the likeliest first, the lower id on a tie.
    """

    logprob: float
    top: tuple[tuple[int, float], ...]


class TargetLaw:
    """What the target says at the positions of a round.

    Args:
        logits: ``[rows, vocab_size]``, after bias, penalties and masks.
        params: Temperature and limits.
    """

    def __init__(self, logits: Logits, params: SamplingParams) -> None:
        self._logits = logits
        self._params = params

    @cached_property
    def token_ids(self) -> Ids:
        """``[rows]``, the most likely tokens."""
        return greedy_token_ids(self._logits)

    @cached_property
    def probs(self) -> Probs:
        """``[rows, vocab_size]``, what tokens are drawn from."""
        return target_probs(self._logits, self._params)

    def logprobs(self, row: int, token_id: int) -> TokenLogprobs | None:
        """Return how likely a token is at a position; None if the request does not want to know."""
        if self._params.logprobs is None:
            return None
        probs = plain_probs(self._logits[row]) if self._params.is_greedy else self.probs[row]
        return token_logprobs(probs, token_id, self._params.logprobs)


def plain_probs(logits: Logits) -> Probs:
    """Return the law ``[vocab_size]`` at temperature 1, without limits."""
    probs: Probs = target_probs(logits[np.newaxis], _PLAIN)[0]
    return probs


def token_logprobs(probs: Probs, token_id: int, num_top: int) -> TokenLogprobs:
    """Return how likely a token is under a law ``[vocab_size]``, beside the ``num_top`` most likely tokens."""
    last = np.partition(probs, -num_top)[-num_top] if 0 < num_top < len(probs) else 0.0
    places = np.flatnonzero((probs >= last) & (probs > 0)) if num_top else np.arange(0)
    best = places[np.argsort(-probs[places], kind="stable")[:num_top]]
    top = tuple((int(place), math.log(probs[place])) for place in best)
    return TokenLogprobs(math.log(probs[token_id]) if probs[token_id] > 0 else -math.inf, top)
