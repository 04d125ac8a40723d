"""The exact law of what may follow a prefix, and cells of it to count draws in.

Everything here is worked out from plain passes of the target, before or beside the draws and never because of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider._core import Law
from outrider.audit.memory import Memory
from outrider.audit.sequential import place
from outrider.sampling import LawShaper
from outrider.sampling.distribution import token_law
from outrider.types import Probs

Path = tuple[int, ...]
_WIDTH = 2
_ARRAYS = 32  # float64 laws over a vocabulary that are kept: 40 MB


class PrefixLaws:
    """The target's law of the next token after a prefix and any few tokens more.

    Args:
        memory: Of the target.
        prefix: Prompt, and answer so far.
        shaper: That stands at the prefix; how its tokens are chosen.
        vocab_size: How many ids have a token.
    """

    def __init__(self, memory: Memory, prefix: Sequence[int], shaper: LawShaper, vocab_size: int) -> None:
        self._memory = memory
        self._prefix = tuple(prefix)
        self._shaper = shaper
        self._vocab_size = vocab_size
        self._arrays: dict[Path, Probs] = {}
        self._stretches: dict[tuple[Path, int], tuple[float, float]] = {}

    def law(self, path: Path) -> Law:
        """Return the law of the token after some tokens."""
        row = self._memory.row((*self._prefix, *path))[np.newaxis, : self._vocab_size]
        return token_law(self._shaper.shape(row, path)[0], self._shaper.params)

    def probs(self, path: Path) -> Probs:
        """Return it as an array, float64; not to be modified."""
        if path not in self._arrays:
            while len(self._arrays) >= _ARRAYS:
                del self._arrays[next(iter(self._arrays))]
            self._arrays[path] = np.asarray(self.law(path))
        return self._arrays[path]

    def stretch(self, path: Path, token_id: int) -> tuple[float, float]:
        """Return the probability of all tokens that are likelier than one, lower ids first on a tie, and its own."""
        key = (path, token_id)
        if key not in self._stretches:
            probs = self.probs(path)
            own = float(probs[token_id])
            before = float(probs[probs > own].sum() + probs[:token_id][probs[:token_id] == own].sum())
            self._stretches[key] = (before, own)
        return self._stretches[key]

    def entropy(self, path: Path = ()) -> float:
        """Return the law's entropy, in nats."""
        probs = self.probs(path)
        possible = probs[probs > 0]
        return float(-(possible * np.log(possible)).sum())


@dataclass(slots=True)
class _Node:
    kept: dict[int, int] = field(default_factory=dict)  # token to number of its cell, or of the node below it
    rest: int = -1  # the cell of all other tokens


class CellTree:
    """A partition of the sequences of ``depth`` tokens after a prefix: some by their beginnings, the others together.

    The likeliest cell is divided by its next token, over and over: into all that are likely enough if there is only one
    token, else into the likeliest few and the rest, so that later tokens get their share of the cells.

    Args:
        laws: At the prefix.
        depth: How many tokens.
        num_cells: About how many cells.
        least_prob: The probability that a cell of its own must have.
    """

    def __init__(self, laws: PrefixLaws, depth: int, num_cells: int, least_prob: float) -> None:
        self.probs: list[float] = [1.0]
        self._nodes: dict[Path, _Node] = {}
        open_cells: dict[int, Path] = {0: ()}
        while open_cells and len(self.probs) < num_cells:
            cell = max(open_cells, key=lambda number: (self.probs[number], -number))
            path, prob = open_cells.pop(cell), self.probs[cell]
            width = num_cells if depth == 1 else _WIDTH
            likeliest = laws.law(path).top(min(width, num_cells - len(self.probs)))
            kept = [(token_id, prob * share) for token_id, share in likeliest if prob * share >= least_prob]
            if not kept:
                continue
            node = self._nodes[path] = _Node(rest=cell)
            self.probs[cell] = max(0.0, prob - sum(share for _, share in kept))
            for token_id, share in kept:
                node.kept[token_id] = len(self.probs)
                if len(path) + 1 < depth:
                    open_cells[len(self.probs)] = (*path, token_id)
                self.probs.append(share)

    def cell(self, tokens: Path) -> int:
        """Return the number of the cell that a sequence falls into."""
        path: Path = ()
        number = 0
        while path in self._nodes and len(path) < len(tokens):
            node, token_id = self._nodes[path], tokens[len(path)]
            if token_id not in node.kept:
                return node.rest
            number, path = node.kept[token_id], (*path, token_id)
        return number


class DirectedOrder:
    """Where a first token stands if those that the draft likes more than the target come last.

    What verification gets wrong moves probability between what the draft likes more and what it likes less. In this
    order that shows as a slope, the same for every prefix, and can be added up.

    Args:
        target: The target's law at the prefix, ``[vocab_size]`` float64.
        drafted: What the drafter said there when it was first asked: a law, a token, or None for nothing.
    """

    def __init__(self, target: Probs, drafted: Probs | int | None) -> None:
        likes = np.zeros(len(target)) if drafted is None else _likes(target, drafted)
        order = np.lexsort((-target, likes))
        before = np.concatenate([[0.0], np.cumsum(target[order])[:-1]])
        self._before = np.empty(len(target))
        self._before[order] = before
        self._probs = target

    def stretch(self, token_id: int) -> tuple[float, float]:
        """Return the probability of all tokens that come before one, and its own."""
        return float(self._before[token_id]), float(self._probs[token_id])

    def bin(self, token_id: int, uniform: float) -> int:
        """Return the bin of a token; see :func:`outrider.audit.sequential.place`."""
        return place(*self.stretch(token_id), uniform)


def _likes(target: Probs, drafted: Probs | int) -> Probs:
    """Return how much more the draft likes each token than the target does, from -1 to 1."""
    likes = np.zeros(len(target))
    if isinstance(drafted, int):
        likes[drafted] = 1.0
        return likes
    total = target + drafted
    np.divide(drafted - target, total, out=likes, where=total > 0)
    return likes


def draws_of(rng: np.random.Generator) -> Iterator[float]:
    """Yield uniform numbers from [0, 1), many drawn at a time."""
    while True:
        yield from rng.random(1024).tolist()
