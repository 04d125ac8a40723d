"""Value types shared by every room.

Terms, used the same way everywhere:

* draft token: a token that a drafter proposed; it is *accepted* or not.
* accepted token: a draft token that the target's law let through.
* recovered token: the token emitted in place of the first draft token that was not accepted.
* bonus token: the token the target adds after a draft that was accepted whole (also after an empty draft).

Every round therefore emits ``num_accepted`` accepted tokens and exactly one recovered or bonus token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

# float64, or fractions.Fraction (dtype object) in the exactness proofs.
Probs = NDArray[Any]
Logits = NDArray[np.float32]


class Outcome(Enum):
    """Where the last token of a round comes from."""

    RECOVERED = "recovered"
    BONUS = "bonus"


class Weights(Protocol):
    """Weights of every token, as of a law: an array ``[vocab_size]`` or a :class:`outrider._core.Law`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """``(vocab_size,)``."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of each weight."""

    def __getitem__(self, token_id: int, /) -> Any:
        """Return the weight of one token."""

    def sum(self) -> Any:
        """Return the sum of all weights."""


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

    def __getitem__(self, row: int, /) -> Weights:
        """Return the law at one position, ``[vocab_size]``."""


class DraftProbs(TargetProbs, Protocol):
    """The laws that draft tokens were drawn from, row by row: an array ``[rows, vocab_size]``, or the like."""

    def __iter__(self) -> Iterator[Weights]:
        """Return the rows in order."""


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
        probs: ``[num_drawn, vocab_size]``, row ``i`` the law that token ``i`` was really drawn from given the tokens
            before it. Tokens beyond were chosen without drawing (n-gram, argmax), and so were all if it is ``None``:
            each law is then the point mass on its token. The draft may be wrong in any way; these laws must be honest.
        problem: In words, what went wrong so that the draft ends here; None if nothing did.
        confidences: For each token the drafter's own estimate of the chance that it is accepted if those before it
            are; empty if it has none. Lengths and choices may depend on it, the output never.
        sources: For each token the name of what proposed it; empty if all are the drafter's.
        is_reading: It is empty because the drafter has yet to read more of the context.
        num_passes: Of the drafter's model that it took; None if that is one for each token, or there is no model.
    """

    token_ids: tuple[int, ...]
    probs: DraftProbs | None = None
    problem: str | None = None
    confidences: tuple[float, ...] = ()
    sources: tuple[str, ...] = ()
    is_reading: bool = False
    num_passes: int | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def parents(self) -> tuple[int, ...]:
        """For each token the number of the one before it, -1 for the first: a chain is a tree without branches."""
        return tuple(range(-1, len(self) - 1))

    @property
    def depth(self) -> int:
        """The most tokens of it that can be accepted."""
        return len(self)

    def path(self, row: int) -> tuple[int, ...]:
        """Return the numbers of the draft tokens that the target's law of a row is given: none for row 0."""
        return tuple(range(row))

    def before(self, row: int) -> tuple[int, ...]:
        """Return those tokens."""
        return self.token_ids[:row]


@dataclass(frozen=True, slots=True)
class TreeDraft:
    """Draft tokens that branch: several candidates for one place.

    Rows are numbered like this everywhere: row 0 is the law after the context, row ``i + 1`` the law after node ``i``.

    Attributes:
        token_ids: One per node, every node after its parent, siblings in the order in which they were drawn.
        parents: For each node its parent's number, -1 for a candidate for the next token.
        probs: ``len(token_ids) + 1`` rows: the law ``[vocab_size]`` that the children of the context, or of node
            ``i``, were drawn from, one after the other and *without replacement*: the second from what is left of the
            law without the first. ``None`` for a row whose children were chosen without drawing (most likely tokens,
            n-grams, a tree pruned by what its tokens are), or that has no children.
        problem: In words, what went wrong so that the draft ends here; None if nothing did.
        sources: For each token the name of what proposed it; empty if all are the drafter's.
    """

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    probs: tuple[Weights | None, ...]
    problem: str | None = None
    sources: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def depth(self) -> int:
        """The most tokens of it that can be accepted."""
        return max((len(self.path(node + 1)) for node in range(len(self))), default=0)

    def path(self, row: int) -> tuple[int, ...]:
        """Return the nodes that the target's law of a row is given, from the top; none for row 0."""
        nodes: list[int] = []
        node = row - 1
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))

    def before(self, row: int) -> tuple[int, ...]:
        """Return their tokens."""
        return tuple(self.token_ids[node] for node in self.path(row))


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

    @property
    def path(self) -> tuple[int, ...]:
        """The numbers of the draft tokens accepted, in order."""
        return tuple(range(self.num_accepted))


@dataclass(frozen=True, slots=True)
class TreeResult:
    """What the target's law made of a tree.

    Attributes:
        path: The nodes accepted, from the top.
        next_token_id: The token emitted after them.
        outcome: Whether that token is recovered, in place of a node's children, or a bonus below a leaf.
    """

    path: tuple[int, ...]
    next_token_id: int
    outcome: Outcome

    @property
    def num_accepted(self) -> int:
        """How many draft tokens were accepted."""
        return len(self.path)


# What a drafter proposes, and what the target's law made of it.
Proposal: TypeAlias = Draft | TreeDraft
Verdict: TypeAlias = VerificationResult | TreeResult


class Coins(Protocol):
    """The random decisions that sampling and verification take.

    Code asks for decisions, not for uniforms, so that one and the same code runs on floating point with a
    pseudo-random stream and, in the proofs, on fractions with every branch enumerated.
    """

    def accept(self, numerator: Any, denominator: Any) -> bool:
        """Return True with probability ``min(1, numerator / denominator)``; never when ``numerator`` is zero."""

    def draw(self, weights: Weights) -> int:
        """Return index ``i`` with probability ``weights[i] / sum(weights)``; never one of zero weight.

        Args:
            weights: ``[vocab_size]``, non-negative, not all zero; need not sum to one.
        """


class DraftCoins(Coins, Protocol):
    """The random decisions that drafting takes."""

    def at_depth(self, depth: int) -> Coins:
        """Return the decisions about a place in a tree: 0 for the candidates after the context.

        Draw siblings one after the other, each from what is left of the law without those before it, and for each
        from a fresh ``at_depth``: where draft and target share their noise it belongs to the place, and candidates are
        then the first few of the target's own race.
        """
