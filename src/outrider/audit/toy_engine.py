"""Whole answers of the engine on toy models, with every random decision enumerated."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.engine.sequence import Request, Rule
from outrider.engine.step import Stepper
from outrider.sampling import SamplingParams, Vocabulary, compile_params
from outrider.types import Coins, Draft, Proposal, Verdict
from outrider.verification.exact import SequenceLaw, outcomes

CHAIN, TREE, CHOSEN = "a model's chains", "a model's trees", "chosen tokens"
_VOCAB_SIZE = 3
_PROMPT = (0, 1)
_NUM_TOKENS = 4
_DRAFT_TOKENS, _TREE_TOKENS = 2, 3
_SEEDS = range(20)
_BASE = SamplingParams(temperature=1.0, max_tokens=_NUM_TOKENS)
PARAMETERS: dict[str, SamplingParams] = {
    "temperature 1": _BASE,
    "temperature 0.5": replace(_BASE, temperature=0.5),
    "top_k 2": replace(_BASE, top_k=2),
    "top_p 0.7": replace(_BASE, top_p=0.7),
    "min_p 0.4": replace(_BASE, min_p=0.4),
    "typical_p 0.6": replace(_BASE, typical_p=0.6),
    "repetition_penalty 1.5": replace(_BASE, repetition_penalty=1.5),
    "presence_penalty 0.8": replace(_BASE, presence_penalty=0.8),
    "frequency_penalty 0.8": replace(_BASE, frequency_penalty=0.8),
    "logit_bias": replace(_BASE, logit_bias={1: 1.5}),
    "bad_words": replace(_BASE, bad_words=("ba",)),
    "allowed_token_ids": replace(_BASE, allowed_token_ids=(0, 2)),
    "stop_token_ids and min_tokens": replace(_BASE, stop_token_ids=(2,), min_tokens=2),
}


def law_of_answer(params: SamplingParams, rule: Rule | str, draft: str | None) -> SequenceLaw:
    """Return the law of a whole answer's tokens, with drafts of a kind or None."""

    def one_answer(coins: Coins) -> tuple[int, ...]:
        return _answer(params, rule, 0, draft, SameCoins(coins))

    return outcomes(one_answer)


def answers_are_equal(params: SamplingParams, draft: str) -> bool:
    """Return whether seeded answers by shared noise are the same with a draft and without, for some seeds."""
    return all(_answer(params, "coupled", seed, draft) == _answer(params, "coupled", seed, None) for seed in _SEEDS)


def _answer(params: SamplingParams, rule: Any, seed: int, draft: str | None, coins: Any = None) -> tuple[int, ...]:
    target = HashLM(_VOCAB_SIZE, seed=5)
    stepper = Stepper(
        target=ToyBackend(target),
        vocab_size=_VOCAB_SIZE,
        eos_ids=frozenset(),
        detokenizer=Letters(),
        drafter=None if draft is None else _drafter(draft),
        num_speculative_tokens=0 if draft is None else _DRAFT_TOKENS,
        max_tree_tokens=_TREE_TOKENS if draft == TREE else 0,
        rule=rule,
    )
    sequence = stepper.open(Request(0, _PROMPT, compile_params(params, Vocabulary(Letters(), _VOCAB_SIZE)), seed))
    if coins is not None:
        sequence.coins = coins
    while sequence.finish_reason is None:
        stepper.step([sequence])
    if sequence.error is not None:
        raise sequence.error
    return tuple(sequence.token_ids[len(_PROMPT) :])


def _drafter(kind: str) -> Drafter:
    if kind == CHOSEN:
        return _Chosen()
    model = ToyBackend(HashLM(_VOCAB_SIZE, seed=9))
    tree_size = _TREE_TOKENS if kind == TREE else 0
    return DraftModelDrafter(model, vocab_size=_VOCAB_SIZE, name="toy", tree_size=tree_size)


class _Chosen:
    """Proposes the letters that follow the last one, without drawing."""

    name = "chosen"

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        return [
            Draft(tuple((one.context_ids[-1] + 1 + place) % _VOCAB_SIZE for place in range(one.max_tokens)), None)
            for one in requests
        ]

    def observe(self, request_id: Hashable, result: Verdict) -> None: ...

    def release(self, request_id: Hashable) -> None: ...


class SameCoins:
    """Deals the decisions of one enumeration, which wants fractions, to every round; in place of a ``CoinSource``."""

    def __init__(self, coins: Coins) -> None:
        self._coins = coins

    def at(self, _position: int, _purpose: int) -> SameCoins:
        """Return the same decisions, whatever for."""
        return self

    def at_depth(self, _depth: int) -> SameCoins:
        """Return the same decisions, whatever the depth."""
        return self

    def accept(self, numerator: Any, denominator: Any) -> bool:
        """See :class:`~outrider.types.Coins`."""
        return self._coins.accept(Fraction(float(numerator)), Fraction(float(denominator)))

    def draw(self, weights: Any) -> int:
        """See :class:`~outrider.types.Coins`."""
        return self._coins.draw(np.array([Fraction(float(weight)) for weight in np.asarray(weights)], dtype=object))


class Letters:
    """A vocabulary in which a token is a letter."""

    eos_ids: Sequence[int] = ()
    special_ids: Sequence[int] = ()
    pieces: Sequence[str] = ()

    def token_bytes(self, token_id: int) -> bytes:
        """Return a token's letter."""
        return bytes([97 + token_id])

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:  # noqa: ARG002 - there are none
        """Return the tokens of some letters."""
        return [ord(character) - 97 for character in text.strip()]
