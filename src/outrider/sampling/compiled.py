"""Sampling parameters for one vocabulary: checked against it, and turned into what takes no time to apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.errors import UsageError
from outrider.sampling.grammar import Bits, Grammar
from outrider.sampling.params import SamplingParams
from outrider.sampling.processors import Ids
from outrider.sampling.response_format import grammar_source
from outrider.sampling.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class CompiledParams:
    """How the tokens of one request are chosen.

    Attributes:
        params: What the caller said.
        bias_ids: The tokens of ``logit_bias``.
        biases: Their biases.
        allowed: A bit for each token, whether ``allowed_token_ids`` has it, the lowest bit of a byte first; None for
            all.
        end_ids: What must not be emitted before ``min_tokens`` tokens: the model's end-of-sequence tokens and
            ``stop_token_ids``.
        bad_words: The token ids of each spelling of each bad word.
        grammar: What ``response_format`` allows, at its beginning; None for any text.
    """

    params: SamplingParams
    bias_ids: Ids
    biases: NDArray[np.float32]
    allowed: Bits | None
    end_ids: Ids
    bad_words: tuple[tuple[int, ...], ...]
    grammar: Grammar | None


def compile_params(params: SamplingParams, vocabulary: Vocabulary) -> CompiledParams:
    """Make sampling parameters ready for a vocabulary.

    Args:
        params: What the caller said.
        vocabulary: What the model can say.

    Raises:
        UsageError: A token id outside the vocabulary, settings that leave no token to say, or a grammar that does not
            compile.
    """
    allowed = params.allowed_token_ids
    _check_ids("logit_bias", list(params.logit_bias), vocabulary.size)
    _check_ids("allowed_token_ids", allowed or (), vocabulary.size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocabulary.size)
    end_ids = sorted({*vocabulary.eos_ids, *params.stop_token_ids})
    bad_words = _spellings(params.bad_words, vocabulary)
    _check_choice(params, vocabulary, end_ids, bad_words)
    ids = np.arange(vocabulary.size)
    source = None if params.response_format is None else grammar_source(params.response_format)
    return CompiledParams(
        params=params,
        bias_ids=np.array(list(params.logit_bias), dtype=np.intp),
        biases=np.array(list(params.logit_bias.values()), dtype=np.float32),
        allowed=None if allowed is None else np.packbits(np.isin(ids, allowed), bitorder="little"),
        end_ids=np.array(end_ids, dtype=np.intp),
        bad_words=bad_words,
        grammar=None if source is None else vocabulary.compile(source),
    )


def _check_choice(
    params: SamplingParams, vocabulary: Vocabulary, end_ids: Sequence[int], bad_words: Sequence[Sequence[int]]
) -> None:
    """Check that there is something to say at all; what a grammar or longer bad words leave depends on the text.

    Raises:
        UsageError: There is nothing.
    """
    candidates = range(vocabulary.size) if params.allowed_token_ids is None else params.allowed_token_ids
    excluded = {word[0] for word in bad_words if len(word) == 1}
    if excluded.issuperset(candidates):
        raise UsageError(
            "bad_words excludes every token that allowed_token_ids leaves, so there is nothing to say; allow another "
            "token, or leave a word out"
        )
    if params.min_tokens and excluded.union(end_ids).issuperset(candidates):
        raise UsageError(
            "every token that allowed_token_ids and bad_words leave ends the answer, and min_tokens is "
            f"{params.min_tokens}; allow another token, or set min_tokens to 0"
        )


def _spellings(words: Sequence[str], vocabulary: Vocabulary) -> tuple[tuple[int, ...], ...]:
    """Return the tokens of each word at the start of a line and after a space, once each.

    Raises:
        UsageError: A word that no token is made of.
    """
    spelled: dict[tuple[int, ...], None] = {}  # a set in order
    for word in words:
        both = [tuple(vocabulary.encode(before + word.lstrip())) for before in ("", " ")]
        if not any(both):
            raise UsageError(f"bad_words has {word!r}, of which the tokenizer makes no token; leave it out")
        spelled |= dict.fromkeys(filter(None, both))
    return tuple(spelled)


def _check_ids(name: str, ids: Sequence[int], vocab_size: int) -> None:
    for token_id in ids:
        if token_id >= vocab_size:
            raise UsageError(f"{name} has token id {token_id}; the model's vocabulary has ids 0 to {vocab_size - 1}")
