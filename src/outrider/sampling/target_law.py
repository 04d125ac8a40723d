"""The target's law at every position of a round, as whoever verifies or reports needs it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from outrider._core import Law
from outrider.sampling.distribution import greedy_token_ids, token_law
from outrider.sampling.params import SamplingParams
from outrider.sampling.shaper import LawShaper
from outrider.types import Draft, Logits, Proposal, TargetIds, TargetProbs

_PLAIN = SamplingParams(temperature=1.0)
_NO_DRAFT = Draft(())
_T = TypeVar("_T")


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

    Each is worked out when it is first asked for. Those behind a draft token that is turned back never are, as in
    plain decoding, which does not get there: whatever is wrong with them harms nobody.

    Args:
        logits: ``[rows, vocab_size]``, as the model gives them, for a row at each draft token and after the last. They
            are this law's from now on: rows are shaped where they stand, if they can be written to.
        shaper: What they go through. It must stand where the round began when a row is first asked for.
        draft: The draft tokens.

    Attributes:
        last_row: Whose law or choice was asked for last. If that raised an error, verification had accepted all
            before it.
    """

    def __init__(self, logits: Logits, shaper: LawShaper, draft: Proposal = _NO_DRAFT) -> None:
        self.last_row = 0
        self._logits = logits
        self._shaper = shaper
        self._draft = draft
        self._shaped: dict[int, Logits] = {}
        self._laws: dict[int, Law] = {}

    @property
    def token_ids(self) -> TargetIds:
        """The most likely tokens."""
        return _Rows(self._token_id, self._logits.shape)

    @property
    def probs(self) -> TargetProbs:
        """``[rows, vocab_size]``, what tokens are drawn from."""
        return _Rows(self._law, self._logits.shape)

    def logprobs(self, row: int, token_id: int) -> TokenLogprobs | None:
        """Return how likely a token is at a position; None if the request does not want to know."""
        params = self._shaper.params
        if params.logprobs is None:
            return None
        law = plain_law(self._shape(row)[0]) if params.is_greedy else self._law(row)
        return token_logprobs(law, token_id, params.logprobs)

    def _token_id(self, row: int) -> int:
        self.last_row = row
        return int(greedy_token_ids(self._shape(row))[0])

    def _law(self, row: int) -> Law:
        self.last_row = row
        if row not in self._laws:
            self._laws[row] = token_law(self._shape(row)[0], self._shaper.params, borrow=True)
        return self._laws[row]

    def _shape(self, row: int) -> Logits:
        if row not in self._shaped:
            own = self._logits[row : row + 1]
            out = own if own.flags.writeable and own.dtype == np.float32 else None
            self._shaped[row] = self._shaper.shape(own, self._draft.before(row), out=out)
        return self._shaped[row]


class _Rows(Generic[_T]):
    """Values by row, each from a function that is called when it is asked for."""

    dtype = np.dtype(np.float64)

    def __init__(self, at: Callable[[int], _T], shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._at = at

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, row: int, /) -> _T:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self._at(row)


def plain_law(logits: Logits) -> Law:
    """Return the law of a row of logits ``[vocab_size]`` at temperature 1, without limits, while they do not change."""
    return token_law(logits, _PLAIN, borrow=True)


def token_logprobs(law: Law, token_id: int, num_top: int) -> TokenLogprobs:
    """Return how likely a token is under a law, beside the ``num_top`` most likely tokens."""
    top = tuple((top_id, math.log(prob)) for top_id, prob in law.top(num_top))
    prob = law[token_id]
    return TokenLogprobs(math.log(prob) if prob > 0 else -math.inf, top)
