"""What sampling needs to know of a model's vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

import numpy as np

from outrider.errors import UsageError
from outrider.sampling.grammar import Grammar
from outrider.sampling.response_format import GrammarSource, Kind

if TYPE_CHECKING:
    from llguidance import LLTokenizer


class TokenTexts(Protocol):
    """The tokens and their texts; a tokenizer knows them."""

    @property
    def eos_ids(self) -> Collection[int]:
        """The tokens that end an answer."""

    @property
    def special_ids(self) -> Collection[int]:
        """The control tokens, which are no text."""

    @property
    def pieces(self) -> Sequence[str]:
        """How each token is spelled."""

    def token_bytes(self, token_id: int) -> bytes:
        """Return what a token adds to the text."""

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Return the token ids of a text."""


class Vocabulary:
    """The tokens that a model can say.

    Args:
        texts: The tokens and their texts.
        size: How many ids the model can say; those beyond are padding.
    """

    def __init__(self, texts: TokenTexts, size: int) -> None:
        self.size = size
        self.eos_ids = tuple(sorted(token_id for token_id in texts.eos_ids if token_id < size))
        self._texts = texts

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, without those that the model wants around every text."""
        return self._texts.encode(text, add_special=False)

    def compile(self, source: GrammarSource) -> Grammar:
        """Return a grammar at its beginning.

        Raises:
            UsageError: It does not compile, cannot be satisfied, or the model has no token to end an answer with.
        """
        from llguidance import LLMatcher  # noqa: PLC0415 - most programs do without

        if not self.eos_ids:
            raise UsageError("response_format needs a model with an end-of-sequence token, and this one has none")
        prepare: dict[Kind, Callable[[str], str]] = {
            "json_schema": LLMatcher.grammar_from_json_schema,
            "regex": LLMatcher.grammar_from_regex,
            "grammar": LLMatcher.grammar_from_lark,
        }
        make = partial(LLMatcher, self._tokenizer, prepare[source.kind](source.text), log_level=0)
        grammar = Grammar(make, np.array(self.eos_ids, dtype=np.intp), self.size)
        grammar.allowed(())  # only now does a grammar turn out to allow nothing
        return grammar

    @cached_property
    def _tokenizer(self) -> LLTokenizer:
        from llguidance import LLTokenizer, TokenizerWrapper  # noqa: PLC0415

        return LLTokenizer(TokenizerWrapper(_Wrapped(self._texts, self)))


class _Wrapped:
    """A vocabulary as llguidance wants to see it."""

    bos_token_id = None

    def __init__(self, texts: TokenTexts, vocabulary: Vocabulary) -> None:
        special = {token_id for token_id in {*texts.special_ids, *texts.eos_ids} if token_id < vocabulary.size}
        self.eos_token_id = vocabulary.eos_ids[0]
        self.special_token_ids = sorted(special)
        self.tokens = [
            texts.pieces[token_id].encode() if token_id in special else texts.token_bytes(token_id)
            for token_id in range(vocabulary.size)
        ]
        self._encode = vocabulary.encode
        self._by_bytes = {token: token_id for token_id, token in enumerate(self.tokens) if token_id not in special}
        self._longest = max(map(len, self._by_bytes), default=0)

    def __call__(self, text: str) -> list[int]:
        """Return how the model would spell a text that a grammar leaves no choice about."""
        if not isinstance(text, str):
            raise TypeError("texts only")  # asked once, with bytes, to find out
        token_ids = self._encode(text)
        # Some tokenizers put a space before every text.
        is_faithful = b"".join(self.tokens[token_id] for token_id in token_ids) == text.encode()
        return token_ids if is_faithful else self._longest_first(text.encode())

    def _longest_first(self, text: bytes) -> list[int]:
        """Return the tokens of as much of a text as there are tokens for."""
        token_ids, start = [], 0
        while start < len(text):
            ends = range(min(start + self._longest, len(text)), start, -1)
            end = next((end for end in ends if text[start:end] in self._by_bytes), None)
            if end is None:
                break
            token_ids.append(self._by_bytes[text[start:end]])
            start = end
        return token_ids
