"""Value types shared by every room.

Terms, used the same way everywhere:

* draft token: a token that a drafter proposed; it is *accepted* or not.
* accepted token: a draft token that the target's law let through.
* recovered token: the token emitted in place of the first draft token that was not accepted.
* bonus token: the token the target adds after a draft that was accepted whole (also after an empty draft).

Every round therefore emits ``num_accepted`` accepted tokens and exactly one recovered or bonus token.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

# float64 in production; arrays of fractions.Fraction (dtype object) in the exactness proofs.
Probs = NDArray[Any]
Logits = NDArray[np.float32]


class Outcome(Enum):
    """Where the last token of a round comes from."""

    RECOVERED = "recovered"
    BONUS = "bonus"


class TargetProbs(Protocol):
    """The target's laws, row by row: an array ``[rows, vocab_size]``, or what works out a row when it is asked for.

    A row behind a draft token that is turned back is one that plain decoding never sees. Nothing is asked of it, not
    even whether it holds numbers: a draft must not turn an answer into an error.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the size of the target's vocabulary."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of each row."""

    def __getitem__(self, row: int, /) -> Probs:
        """Return the law at one position, ``[vocab_size]``."""


class TargetIds(Protocol):
    """The target's choices, row by row; see :class:`TargetProbs`."""

    def __len__(self) -> int:
        """Return how many rows there are."""

    def __getitem__(self, row: int, /) -> int:
        """Return the choice at one position."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What a drafter proposes for one sequence in one round.

    Attributes:
        token_ids: The draft tokens, in order. May be empty: the round is then a plain decoding step.
        probs: ``[len(token_ids), vocab_size]``, row ``i`` the law that token ``i`` was really drawn from given the
            tokens before it. ``None`` says that the tokens were chosen without drawing (n-gram, argmax): each law is
            then the point mass on its token. The draft may be wrong in any way; these laws must be honest.
        problem: In words, what went wrong so that the draft ends here; None if nothing did.
    """

    token_ids: tuple[int, ...]
    probs: Probs | None = None
    problem: str | None = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """What the target's law made of a draft.

    Attributes:
        num_accepted: How many draft tokens, counted from the front, were accepted.
        next_token_id: The token emitted after them.
        outcome: Whether that token is recovered or a bonus.
    """

    num_accepted: int
    next_token_id: int
    outcome: Outcome


class Coins(Protocol):
    """The random decisions that sampling and verification take.

    Code asks for decisions, not for uniforms, so that one and the same code runs on floating point with a
    pseudo-random stream and, in the proofs, on fractions with every branch enumerated.
    """

    def accept(self, numerator: Any, denominator: Any) -> bool:
        """Return True with probability ``min(1, numerator / denominator)``; never when ``numerator`` is zero."""

    def draw(self, weights: Probs) -> int:
        """Return index ``i`` with probability ``weights[i] / sum(weights)``; never one of zero weight.

        Args:
            weights: ``[vocab_size]``, non-negative, not all zero; need not sum to one.
        """
