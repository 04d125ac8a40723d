"""What may be done to a draft model to make it cheaper: nothing that it says can harm the target's law.

The draft's weights are requantised to 4 bits and its output matrix is cut to the tokens that are likely to be needed.
Its laws remain laws: over the tokens kept, and zero elsewhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

from outrider.errors import UsageError
from outrider.models.fields import shown
from outrider.models.tokenizer import Tokenizer, TokenKind

DraftWeights = Literal["file", "int8", "int4"]


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """How a draft model is held.

    The defaults are the fastest for Qwen2.5-Coder's 1.5B drafted for by its 0.5B, of those measured (docs/log.md).

    Attributes:
        weights: ``"file"`` as the file has them, ``"int8"`` or ``"int4"`` requantised, but for what the file holds in
            no more bits.
        vocab: How many ordinary tokens the draft can say, or None for all. Tokens that end an answer are always kept.
        text: Text like that to be generated. The tokens most frequent in it are kept first; the others, or all
            without a text, follow in the order of the tokenizer's merges.
        window: How many last tokens the draft sees, at least 128, or None for all. It sees the first 64 besides, and
            its cache holds little more. Worth it for long contexts whose middle matters little.

    Raises:
        UsageError: A value is out of range.
    """

    weights: DraftWeights = "int4"
    vocab: int | None = 1 << 16
    text: str | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if self.weights not in get_args(DraftWeights):
            raise UsageError(f"weights is {shown(self.weights)}; use one of {', '.join(get_args(DraftWeights))}")
        if self.vocab is not None and (type(self.vocab) is not int or self.vocab < 1):
            raise UsageError(
                f"vocab is {shown(self.vocab)}; it must be a whole number of tokens, at least 1, or None for all"
            )
        if self.text is not None and not isinstance(self.text, str):
            raise UsageError(f"text is {shown(self.text)}; it must be text, or None")
        if self.window is not None and (type(self.window) is not int or not 128 <= self.window <= 1 << 24):
            raise UsageError(f"window is {shown(self.window)}; it must be from 128 to 16777216 tokens, or None for all")

    def head_tokens(self, tokenizer: Tokenizer, vocab_size: int) -> list[int] | None:
        """Return the ids that the draft can say, in ascending order; None for all of them.

        Args:
            tokenizer: The draft's.
            vocab_size: The rows of its output matrix.
        """
        if self.vocab is None:
            return None
        ordinary = by_frequency(tokenizer, self.text)
        if self.vocab >= len(ordinary):
            return None
        return sorted(token_id for token_id in {*ordinary[: self.vocab], *tokenizer.eos_ids} if token_id < vocab_size)


def by_frequency(tokenizer: Tokenizer, text: str | None = None) -> list[int]:
    """Return the ids of all tokens that text can have, the most frequent first.

    By their counts in the text; those that it lacks, or all without one, in the order of the merges, for a merge
    that was learnt earlier joins a more frequent pair. Byte-level vocabularies number tokens in that order.
    SentencePiece does, too, but puts single characters last; of these the printable ASCII ones and the space come first
    here, whatever their number.
    """
    counts = Counter(() if text is None else tokenizer.encode(text, add_special=False))
    pieces, kinds = tokenizer.pieces, tokenizer.kinds

    def rank(token_id: int) -> tuple[int, bool, int]:
        piece = pieces[token_id]
        is_letter = len(piece) == 1 and (piece.isascii() or piece == "\u2581")
        return -counts[token_id], not is_letter, token_id

    silent = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED)
    return sorted((token_id for token_id in range(len(pieces)) if kinds[token_id] not in silent), key=rank)


def describe(weights: DraftWeights, head_tokens: list[int] | None, window: int | None) -> str:
    """Return in a few words what was done to a draft, nothing if nothing was."""
    done = [f"{weights} weights"] if weights != "file" else []
    done += [f"{len(head_tokens)} tokens"] if head_tokens is not None else []
    done += [f"window of {window}"] if window is not None else []
    return ", ".join(done)
