"""What a target has said, said again: the engine runs its rounds on it as on the target, without the target's passes.

A round of speculative decoding depends on the target through its text alone, once that is known: a draft token is
accepted if it is what the text has there. Greedily, with shared noise and for tokens that were chosen without drawing
that is the rule itself. Tokens that were drawn are drawn in hindsight: as the draft would have drawn them, given that
the target went on to say this (:class:`Hindsight`). So what stands of the drafts replayed, and what is emitted, has the
law of the rounds that were, for any drafter, at the cost of its passes only. Under the block rule what a draft holds
behind the place where it is turned back has that law but nearly, since such tokens have a say in where that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outrider.backends.toy import HashLM, ToyBackend
from outrider.types import DraftCoins, Logits, Weights
from outrider.verification import CoinSource, Purpose
from outrider.verification.law import difference

# More than any bias or penalty takes away, and finite.
_CERTAIN = 1e4


@dataclass(frozen=True, slots=True)
class Recording:
    """A prompt and what the target made of it.

    Attributes:
        id, family: Of the prompt.
        prompt_ids: At least one token.
        answer_ids: What followed, at least one token.
        laws: The target's law at each token of the answer, ``[vocab_size]`` each; None where nothing is drawn and
            accepted by its law.
        seed: Of the noise that drew the answer.
    """

    id: str
    family: str | None
    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    laws: tuple[Weights, ...] | None = None
    seed: int = 0


class RecordedBackend(ToyBackend):
    """A :class:`~outrider.backends.base.Backend` that is certain of one text, and has no opinion elsewhere."""

    def __init__(self, recording: Recording, *, vocab_size: int, max_length: int) -> None:
        super().__init__(HashLM(vocab_size), max_length)
        self._text = [*recording.prompt_ids, *recording.answer_ids]

    def _logits(self, prefixes: Sequence[Sequence[int]]) -> Logits:
        logits = np.zeros((len(prefixes), self.vocab_size), np.float32)  # memory that is not read costs nothing
        for row, prefix in zip(logits, prefixes, strict=True):
            if len(prefix) < len(self._text) and self._text[: len(prefix)] == prefix:
                row[self._text[len(prefix)]] = _CERTAIN
        return logits


class HindsightCoins:
    """Draws a chain of draft tokens given the text that its round came to; a :class:`~outrider.types.DraftCoins`.

    The token rule has a draft token stand at ``x`` with the joint weight ``min(target, draft)(x)``; divided by what
    the target gives to ``x``, which it did say, that is ``min(1, draft / target)``. If it does not stand, the draft had
    a token from ``max(draft - target, 0)`` and goes on from there. For the block rule see
    :func:`~outrider.planner.formulas.block_survivals`: the draft's law counts ``_scale`` times, which is the ratio of
    the whole beginning by its least so far.

    Args:
        coins: What to draw by.
        said: The text from the place of the first draft token on.
        laws: The target's at each token of it.
        is_block: Whether drafts are verified by the block rule rather than the token rule.
    """

    __slots__ = ("_coins", "_is_block", "_is_on_text", "_laws", "_place", "_said", "_scale")

    def __init__(self, coins: DraftCoins, said: Sequence[int], laws: Sequence[Weights], *, is_block: bool) -> None:
        self._coins = coins
        self._said, self._laws, self._is_block = said, laws, is_block
        self._place, self._is_on_text = 0, True
        self._scale: Any = 1

    def at_depth(self, _depth: int, /) -> HindsightCoins:
        """See :meth:`outrider.types.DraftCoins.at_depth`; trees of drawn tokens are not drawn in hindsight."""
        return self

    def accept(self, numerator: Any, denominator: Any) -> bool:
        """See :meth:`outrider.types.Coins.accept`."""
        return self._coins.accept(numerator, denominator)

    def draw(self, weights: Weights) -> int:
        """See :meth:`outrider.types.Coins.draw`."""
        place = self._place
        self._place += 1
        if not self._is_on_text or place >= len(self._said):
            return self._coins.draw(weights)
        said, law = self._said[place], self._laws[place]
        drafted = self._scale * weights[said]
        if self._coins.accept(drafted, law[said]):
            self._scale = max(1, drafted / law[said]) if self._is_block else 1
            return said
        self._is_on_text = False
        rest = difference(weights, law, self._scale)
        return self._coins.draw(rest if rest.sum() > 0 else weights)


@dataclass(frozen=True, slots=True)
class Hindsight(CoinSource):
    """The randomness of a sequence whose draft tokens are drawn knowing what the target said.

    Attributes:
        recording: What it said, with laws.
        is_block: See :class:`HindsightCoins`.
    """

    recording: Recording | None = None
    is_block: bool = True

    def at(self, position: int, purpose: Purpose) -> DraftCoins:
        """See :meth:`~outrider.verification.CoinSource.at`."""
        coins = CoinSource.at(self, position, purpose)
        if purpose is not Purpose.DRAFT or self.recording is None or self.recording.laws is None:
            return coins
        place = position - len(self.recording.prompt_ids)
        said, laws = self.recording.answer_ids[place:], self.recording.laws[place:]
        return HindsightCoins(coins, said, laws, is_block=self.is_block)
