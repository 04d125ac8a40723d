"""Looks up what comes next: in the prompt, the output so far, a text the caller expects, and past outputs.

No model: what followed the last tokens when they occurred before is likely to follow again. Costs some look-ups and
comparisons a round, whatever the length of the texts and the size of the vocabulary. Knows nothing of text: it sees
token ids only. Prompt lookup is Saxena's (2023), long drafts from suffixes of any length are SuffixDecoding's
(2411.04975); following a copy through its edits is our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from outrider.drafters.base import DraftRequest
from outrider.drafters.gain import Kind, Odds, PassCosts, Rate, choose_length
from outrider.drafters.lookup import LONGEST_MATCH, Copy, Index, Match, Resumption, common_length
from outrider.drafters.store import TextStore
from outrider.types import Draft, Verdict

# A match of so many tokens makes what follows it a copy that is worth following through edits.
_COPY_LENGTH = 12
# What is expected with which chance, by the length of the match: first tokens on which occurrences disagree much, a
# little, and hardly; tokens of a copy. From replays on answers of Qwen2.5-Coder 1.5B to 28 prompts of all kinds.
_LENGTHS = (0, 1, 2, 3, 5, 9, 17, LONGEST_MATCH)
_AGREEMENTS = (0.0, 0.4, 0.75)
_AGREED, _COPIED = 2, 3
_CHANCES = (
    (0.05, 0.14, 0.1, 0.3, 0.3, 0.5, 0.7, 0.8),
    (0.05, 0.22, 0.2, 0.5, 0.5, 0.7, 0.8, 0.9),
    (0.05, 0.30, 0.55, 0.65, 0.79, 0.88, 0.97, 0.98),
    (0.03, 0.2, 0.5, 0.7, 0.85, 0.93, 0.97, 0.985),
)


def _prior(kind: Kind) -> float:
    return _CHANCES[kind[1]][kind[2]]


def _kinds(source: str, what: int, length: int, count: int) -> list[Kind]:
    """Return the kind of each token behind a match: every token drafted lengthens it by one."""
    lengths = [sum(length + ahead >= low for low in _LENGTHS) - 1 for ahead in range(count)]
    return [(source, max(what, _AGREED) if ahead else what, bucket) for ahead, bucket in enumerate(lengths)]


@dataclass(frozen=True, slots=True)
class _Guess:
    """What one way of looking up proposes: tokens, and what kind of expectation each of them is."""

    token_ids: list[int]
    kinds: list[Kind]


@dataclass(slots=True)
class _Source:
    """A text to look into: the context itself, which grows with the output, or what the caller predicts.

    Attributes:
        copy: That the output is making of the text, if it is.
        begun: The last match, from which a copy may have begun, and how long the context was then.
    """

    name: str
    text: Sequence[int]
    index: Index = field(default_factory=Index)
    copy: Copy | None = None
    begun: tuple[Match, int] | None = None

    def grow(self, text: Sequence[int]) -> None:
        """Take in the text, which has grown."""
        self.text = text
        if self.copy is not None:
            self.copy.text = text
        self.index.extend(text)

    def matched(self, context: Sequence[int], count: int) -> tuple[_Guess, Match] | None:
        """Return what followed the end of the context where it occurred before."""
        match = self.index.longest(self.text, context)
        if match is None:
            return None
        return _guess(self.name, match, _repeated(self.text, match.place, count)), match

    def guesses(self, context: Sequence[int], count: int) -> list[_Guess]:
        """Return what the text says may follow a context."""
        guesses = []
        resumed = self._follow(context)
        if self.copy is not None and resumed is not None:
            tokens = [*resumed.pending, *self.copy.expected(resumed.place, count)][:count]
            guesses.append(_Guess(tokens, _kinds(self.name, _COPIED, resumed.length, len(tokens))))
        if (found := self.matched(context, count)) is not None:
            guesses.append(found[0])
        self.begun = None if found is None else (found[1], len(context))
        return guesses

    def _follow(self, context: Sequence[int]) -> Resumption | None:
        """Return where the copy goes on; where it is lost and the output went on as the last match did, a new one."""
        resumed = None if self.copy is None else self.copy.follow(context)
        if self.begun is None:
            return resumed
        match, start = self.begun
        if self.copy is not None and self.copy.start >= start:
            return resumed
        if match.length + common_length(self.text, match.place, context, start) < _COPY_LENGTH:
            return resumed
        self.copy = Copy(self.text, match.place, start, {} if self.copy is None else self.copy.edits)
        return self.copy.follow(context)


class _Memory:
    """What is known of one request."""

    def __init__(self, request: DraftRequest) -> None:
        context, prediction = request.context_ids, request.prediction_ids
        self.odds = Odds(_prior)
        self.rate = Rate()
        self.own = _Source("ngram", context)
        self.sources = [self.own]
        if prediction:
            copy = Copy(prediction, 0, len(context) - 1)
            self.sources.append(_Source("prediction", prediction, copy=copy))
            self.sources[-1].index.extend(prediction)
        self.guesses: list[_Guess] = []
        self.num_proposed = 0  # tokens of the last draft
        self.num_drafted = 0  # the same, but -1 if they were not put up for verification
        self._length = len(context)  # when it was last looked at

    def learn(self, context: Sequence[int], costs: PassCosts) -> None:
        """See which guesses came true, those that were not proposed as well."""
        added = context[self._length :]
        if added and self.num_drafted >= 0:
            self.rate.observe(len(added), costs.at(1 + self.num_drafted))
        for guess in self.guesses:
            for kind, guessed, token_id in zip(guess.kinds, guess.token_ids, added, strict=False):
                self.odds.observe(kind, came_true=guessed == token_id)
                if guessed != token_id:
                    break
        self._length = len(context)
        self.own.grow(context)


class NgramDrafter:
    """Proposes what followed the end of the context where it occurred before.

    How long a draft gets depends on how likely its tokens are to be accepted: that grows with the length of the match
    and with how often such a match was right in this request, proposed or not. Where the output copies a longer text,
    a file to be edited or what the caller predicts, the copy is found again after each deviation, and what was
    replaced once is expected to be replaced again. The draft is a choice, not a sample: its law is the point mass.

    Args:
        costs: Of the target's passes. They decide how long drafts get, nothing else.
        store: Past outputs to look into as well. Whoever generates adds to it.
    """

    name = "ngram"

    def __init__(self, *, costs: PassCosts | None = None, store: TextStore | None = None) -> None:
        self.costs = costs or PassCosts()
        self.store = store
        self._memories: dict[Hashable, _Memory] = {}

    def hear_costs(self, costs: PassCosts) -> None:
        """Take note of what the target's passes cost now."""
        self.costs = costs

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See :meth:`outrider.drafters.base.Drafter.propose`."""
        return [self._propose(request) for request in requests]

    def observe(self, request_id: Hashable, result: Verdict) -> None:  # noqa: ARG002 - the next context says more
        """Note that the last draft was used; what became of it the next context says."""
        memory = self._memories.get(request_id)
        if memory is not None:
            memory.num_drafted = memory.num_proposed

    def release(self, request_id: Hashable) -> None:
        """Forget a request."""
        self._memories.pop(request_id, None)

    def _propose(self, request: DraftRequest) -> Draft:
        memory = self._memories.get(request.request_id)
        if memory is None:
            memory = self._memories[request.request_id] = _Memory(request)
            if self.store is not None:
                self.store.refresh()
        guesses = self._guesses(memory, request)
        best, best_gain, best_length = None, 0.0, 0
        for guess in guesses:
            chances = [memory.odds.chance(kind) for kind in guess.kinds]
            length, gain = choose_length(chances, self.costs, memory.rate.value, num_before=len(request.draft_ids))
            if gain > best_gain:
                best, best_gain, best_length = guess, gain, length
        if not request.draft_ids:
            memory.guesses = guesses
            memory.num_proposed, memory.num_drafted = best_length, -1 if best_length else 0
        if best is None:
            return Draft(())
        chosen = best.kinds[:best_length]
        return Draft(
            tuple(best.token_ids[:best_length]),
            confidences=tuple(memory.odds.chance(kind) for kind in chosen),
            sources=tuple(source for source, _, _ in chosen),
        )

    def _guesses(self, memory: _Memory, request: DraftRequest) -> list[_Guess]:
        count = request.max_tokens
        if request.draft_ids:  # may not come true: nothing is to be learned from them
            memory.own.grow(request.context_ids)
            context: Sequence[int] = [*request.context_ids[-LONGEST_MATCH:], *request.draft_ids]
            found = [source.matched(context, count) for source in memory.sources]
            guesses = [one[0] for one in found if one is not None]
        else:
            context = request.context_ids
            memory.learn(context, self.costs)
            guesses = [guess for source in memory.sources for guess in source.guesses(context, count)]
        if self.store is not None and (past := self.store.find(context)) is not None:
            guesses.append(_guess("store", past[0], past[1][:count]))
        return [guess for guess in guesses if guess.token_ids]


def _guess(source: str, match: Match, token_ids: list[int]) -> _Guess:
    what = sum(match.agreement >= low for low in _AGREEMENTS) - 1
    return _Guess(token_ids, _kinds(source, what, match.length, len(token_ids)))


def _repeated(text: Sequence[int], place: int, count: int) -> list[int]:
    """Return what follows a place; a place close to the end runs into the draft: the text repeats with that period."""
    tokens: list[int] = []
    for ahead in range(place, place + count):
        beyond = ahead - len(text)
        tokens.append(text[ahead] if beyond < 0 else tokens[beyond])
    return tokens
