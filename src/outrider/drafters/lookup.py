"""Where a text occurred before, and where a copy with changes resumes. Token ids only; no probabilities, no models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LONGEST_MATCH = 32
_ORDERS = (8, 4, 2, 1)
_MAX_CANDIDATES = 16
_WINDOW = 48  # tokens around the place of a deviation in which a copy may resume
_LONGEST_EDIT = 24


def match_length(text: Sequence[int], end: int, other: Sequence[int], other_end: int) -> int:
    """Return how many tokens before ``end`` equal those before ``other_end``, up to ``LONGEST_MATCH``."""
    limit = min(end, other_end, LONGEST_MATCH)
    length = 0
    while length < limit and text[end - 1 - length] == other[other_end - 1 - length]:
        length += 1
    return length


def common_length(text: Sequence[int], place: int, other: Sequence[int], other_place: int) -> int:
    """Return how many tokens from one place on equal those from another, up to ``LONGEST_MATCH``."""
    limit = min(len(text) - place, len(other) - other_place, LONGEST_MATCH)
    length = 0
    while length < limit and text[place + length] == other[other_place + length]:
        length += 1
    return length


def vote(found: Sequence[tuple[int, int]]) -> tuple[int, float]:
    """Return the token that most occurrences, given by length of match and next token, go on with, and its share."""
    votes: dict[int, float] = {}
    for length, token_id in found:
        votes[token_id] = votes.get(token_id, 0.0) + 2.0**length
    winner = max(votes, key=lambda token_id: votes[token_id])
    return winner, votes[winner] / sum(votes.values())


class Index:
    """Where each n-gram of a growing text was followed by a token. Constant work a token, and a look-up."""

    def __init__(self) -> None:
        self._heads: dict[int, dict[tuple[int, ...], int]] = {order: {} for order in _ORDERS}
        # The place before, of the same n-gram, by place; 0 for none, as no n-gram ends there.
        self._previous: dict[int, list[int]] = {order: [0] for order in _ORDERS}
        self._num_indexed = 1

    def extend(self, text: Sequence[int]) -> None:
        """Take in what was added to a text; it must begin with what was taken in before."""
        added = range(self._num_indexed, len(text))
        for order in _ORDERS:
            heads, previous = self._heads[order], self._previous[order]
            for place in added:
                if place < order:
                    previous.append(0)
                    continue
                key = tuple(text[place - order : place])
                previous.append(heads.get(key, 0))
                heads[key] = place
        self._num_indexed = max(self._num_indexed, len(text))

    def longest(self, text: Sequence[int], context: Sequence[int]) -> Match | None:
        """Return where the indexed text goes on like the context did before, by the longest match with its end.

        The latest few occurrences vote on the next token, a match longer by one token with twice the weight; of those
        that agree with the winner the longest, then the latest is returned.
        """
        for order in _ORDERS:
            place = self._heads[order].get(tuple(context[-order:]), 0)
            if not place or len(context) < order:
                continue
            found: list[tuple[int, int]] = []
            while place and len(found) < _MAX_CANDIDATES:
                found.append((match_length(text, place, context, len(context)), place))
                place = self._previous[order][place]
            winner, agreement = vote([(length, text[place]) for length, place in found])
            length, place = max(one for one in found if text[one[1]] == winner)
            return Match(place, length, agreement)
        return None


@dataclass(frozen=True, slots=True)
class Match:
    """Where a text goes on like a context did before.

    Attributes:
        place: In the text, of the token that follows.
        length: How many tokens before it match the end of the context.
        agreement: The share of the votes that its token has.
    """

    place: int
    length: int
    agreement: float


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a copy goes on.

    Attributes:
        place: In the text.
        length: How many tokens behind it match the end of the output; 0 if it is a mere guess.
        pending: Output tokens that come first: the rest of an edit that has begun.
    """

    place: int
    length: int
    pending: tuple[int, ...] = ()


@dataclass(slots=True)
class Edit:
    """What replaced what."""

    old: tuple[int, ...]
    new: tuple[int, ...]
    score: int = 1


@dataclass(slots=True)
class Copy:
    """An output that copies a text, with changes.

    While the copy is exact, ``place`` follows it. From a deviation on, the places nearby where it may resume are
    weighed by how much of the output behind it they match. What was replaced by what is remembered and expected again:
    in a renaming it comes again and again.

    Attributes:
        text: What is copied. May grow.
        place: Where the next token is expected, or where the copy deviated.
        start: As many output tokens, counted from the beginning of the context, were copied up to ``place``.
        edits: What replaced what, by the first token replaced; each with its score, which outcomes change.
    """

    text: Sequence[int]
    place: int
    start: int
    edits: dict[int, list[Edit]] = field(default_factory=dict)
    _tried: int = 0  # up to where the output was searched for a place to resume
    _best: Resumption | None = None

    def follow(self, context: Sequence[int]) -> Resumption | None:
        """Take in what was added to the output, and say where the copy goes on; None once it is lost."""
        while True:
            pending = self._advance(context)
            if pending is not None:
                return pending
            if self.start == len(context):
                return Resumption(self.place, match_length(self.text, self.place, context, self.start))
            for end in range(max(self.start, self._tried) + 1, len(context) + 1):
                if end - self.start > _WINDOW:
                    return None
                self._tried, self._best = end, self._resume(context, end)
                if self.start == end:
                    break
            else:
                return self._best

    def expected(self, place: int, count: int) -> list[int]:
        """Return the next tokens from a place on, known edits applied; may be fewer than ``count``, or a few more."""
        tokens: list[int] = []
        while len(tokens) < count and place < len(self.text):
            edit = self._edit_at(place)
            if edit is None:
                tokens.append(self.text[place])
                place += 1
            else:
                tokens += edit.new
                place += len(edit.old)
        return tokens

    def _edit_at(self, place: int) -> Edit | None:
        for edit in self.edits.get(self.text[place], ()):
            if edit.score > 0 and tuple(self.text[place : place + len(edit.old)]) == edit.old:
                return edit
        return None

    def _advance(self, context: Sequence[int]) -> Resumption | None:
        """Follow the copy as far as it is exact, known edits included; return where it goes on amid an edit."""
        while self.start < len(context) and self.place < len(self.text):
            edit = self._edit_at(self.place)
            if context[self.start] == self.text[self.place]:
                if edit is not None:
                    edit.score -= 1  # it was not made this time
                self.start += 1
                self.place += 1
            elif edit is None:
                break
            else:
                made = tuple(context[self.start : self.start + len(edit.new)])
                if made != edit.new[: len(made)]:
                    edit.score -= 1
                    break
                if len(made) < len(edit.new):
                    return Resumption(self.place + len(edit.old), LONGEST_MATCH, edit.new[len(made) :])
                edit.score = min(edit.score + 1, 3)
                self.place += len(edit.old)
                self.start += len(edit.new)
        return None

    def _resume(self, context: Sequence[int], end: int) -> Resumption:
        """Return where the copy may go on after ``end``, and settle on it once enough of it matches."""
        since = end - self.start
        guess = self.place + since
        best, best_length, best_score = guess, 0, 0.0
        for place in range(max(1, self.place - since), min(guess + _WINDOW, len(self.text)) + 1):
            if self.text[place - 1] != context[end - 1]:
                continue
            length = min(match_length(self.text, place, context, end), since + 1)
            score = length - abs(place - guess) / _WINDOW
            if score > best_score:
                best, best_length, best_score = place, length, score
        if best_length >= min(3, since + 1):
            self._learn(context, best - best_length, end - best_length)
            self.place, self.start = best, end
        return Resumption(best, best_length)

    def _learn(self, context: Sequence[int], old_end: int, new_end: int) -> None:
        old = tuple(self.text[self.place : old_end])
        new = tuple(context[self.start : new_end])
        if 0 < len(old) <= _LONGEST_EDIT and 0 < len(new) <= _LONGEST_EDIT:
            known = self.edits.setdefault(old[0], [])
            known[:] = [edit for edit in known if edit.old != old]
            known.insert(0, Edit(old, new))
