"""Sampling parameters for one vocabulary: checked against it, and turned into what takes no time to apply."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.errors import UsageError
from outrider.sampling.params import SamplingParams
from outrider.sampling.processors import Ids


class Encoder(Protocol):
    """What cutting bad words into tokens takes; a tokenizer is one."""

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the token ids of a text, with or without the tokens that the model wants around every text."""


@dataclass(frozen=True, slots=True)
class CompiledParams:
    """How the tokens of one request are chosen.

    Attributes:
        params: What the caller said.
        bias_ids: The tokens of ``logit_bias``.
        biases: Their biases.
        allowed_ids: ``allowed_token_ids``, or None for all.
        end_ids: What must not be emitted before ``min_tokens`` tokens: the model's end-of-sequence tokens and
            ``stop_token_ids``.
        bad_words: The token ids of each spelling of each bad word.
    """

    params: SamplingParams
    bias_ids: Ids
    biases: NDArray[np.float32]
    allowed_ids: Ids | None
    end_ids: Ids
    bad_words: tuple[tuple[int, ...], ...]


def compile_params(
    params: SamplingParams, *, vocab_size: int, eos_ids: Collection[int], encoder: Encoder
) -> CompiledParams:
    """Make sampling parameters ready for a vocabulary.

    Args:
        params: What the caller said.
        vocab_size: How many ids there are.
        eos_ids: The model's end-of-sequence tokens.
        encoder: Cuts bad words into tokens.

    Raises:
        UsageError: A token id outside the vocabulary, or settings that leave no token to say.
    """
    allowed = params.allowed_token_ids
    _check_ids("logit_bias", list(params.logit_bias), vocab_size)
    _check_ids("allowed_token_ids", allowed or (), vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    end_ids = sorted({*eos_ids, *params.stop_token_ids})
    if params.min_tokens and allowed is not None and set(end_ids).issuperset(allowed):
        raise UsageError(
            f"allowed_token_ids {tuple(allowed)} all end the answer, and min_tokens is {params.min_tokens}; allow "
            "another token, or set min_tokens to 0"
        )
    return CompiledParams(
        params=params,
        bias_ids=np.array(list(params.logit_bias), dtype=np.intp),
        biases=np.array(list(params.logit_bias.values()), dtype=np.float32),
        allowed_ids=None if allowed is None else np.array(allowed, dtype=np.intp),
        end_ids=np.array(end_ids, dtype=np.intp),
        bad_words=_spellings(params.bad_words, encoder),
    )


def _spellings(words: Sequence[str], encoder: Encoder) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each word at the start of a line and after a space, once each.

    Raises:
        UsageError: A word that no token is made of.
    """
    spelled: dict[tuple[int, ...], None] = {}  # a set in order
    for word in words:
        both = [tuple(encoder.encode(before + word.lstrip(), add_special=False)) for before in ("", " ")]
        if not any(both):
            raise UsageError(f"bad_words has {word!r}, of which the tokenizer makes no token; leave it out")
        spelled |= dict.fromkeys(filter(None, both))
    return tuple(spelled)


def _check_ids(name: str, ids: Sequence[int], vocab_size: int) -> None:
    for token_id in ids:
        if token_id >= vocab_size:
            raise UsageError(f"{name} has token id {token_id}; the model's vocabulary has ids 0 to {vocab_size - 1}")
