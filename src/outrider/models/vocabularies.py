"""How the vocabulary of a draft relates to its target's, told from the tokenizers alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from outrider.models.byte_vocabulary import ByteVocabulary
from outrider.models.tokenizer import Tokenizer, TokenKind

# Up to this share of ids may differ where vocabularies count as the same but for a few.
_MAX_DIFFERING = 0.01
# Below this share of a text's tokens, what the draft says is hardly ever something that the target could say.
_MIN_SHARED = 0.1
# What a target is likely to be asked about: prose, code, figures, and other languages.
SAMPLE = """The committee met on Tuesday, 14 March 2023, and agreed to publish its report by the end of May.
"I don't think we should wait any longer," said Dr. Alvarez; the others weren't so sure.

def moving_average(values: list[float], width: int = 3) -> list[float]:
    if width <= 0:
        raise ValueError(f"width is {width}; it must be positive")
    return [sum(values[i : i + width]) / width for i in range(len(values) - width + 1)]

| name | price | in stock |
|------|-------|----------|
| lamp | 24.90 | yes      |

Die Straße führt über eine alte Brücke. Le café est fermé jusqu'à demain. 今天天气很好。 Привет, как дела?
"""


class Relation(Enum):
    """What two vocabularies have in common."""

    IDENTICAL = "identical"
    PADDED = "padded"  # the same tokens, and more or less padding behind them
    NEARLY_IDENTICAL = "nearly identical"
    OVERLAPPING = "overlapping"
    UNRELATED = "unrelated"


@dataclass(frozen=True, slots=True)
class DifferingId:
    """An id that does not mean the same to both; None stands for no token."""

    token_id: int
    target: str | None
    draft: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the vocabulary of a draft relates to its target's.

    Attributes:
        relation: In one word.
        differing_ids: The ids that do not mean the same to both; nearly all, where tokens are numbered otherwise.
        shared_in_sample: The share of the tokens of a sample text, as the target cuts it, that the draft has, too.
    """

    relation: Relation
    differing_ids: tuple[DifferingId, ...]
    shared_in_sample: float

    @property
    def works(self) -> bool:
        """Whether the draft can draft for the target."""
        return self.relation is not Relation.UNRELATED

    @property
    def consequence(self) -> str:
        """What the engine does about it, in words."""
        if not self.works:
            return (
                f"it is refused: only {self.shared_in_sample:.0%} of the target's tokens of a sample text are the "
                "draft's, too, so it could hardly say what the target says; use another draft, or ngram"
            )
        return _CONSEQUENCES[self.relation]


_CONSEQUENCES = {
    Relation.IDENTICAL: "it drafts token by token",
    Relation.PADDED: "it drafts token by token; padding is never proposed",
    Relation.NEARLY_IDENTICAL: "it drafts token by token; where the ids that differ occur, they cost acceptance",
    Relation.OVERLAPPING: "it reads and writes in its own tokens, and its drafts are cut into the target's",
}


def compare_vocabularies(target: Tokenizer, draft: Tokenizer) -> Comparison:
    """Compare two vocabularies."""
    differing = _differing_ids(target, draft)
    num_ids = max(target.num_tokens, draft.num_tokens)
    if not differing:
        sizes_agree = (target.vocab_size, target.num_tokens) == (draft.vocab_size, draft.num_tokens)
        return Comparison(Relation.IDENTICAL if sizes_agree else Relation.PADDED, (), 1.0)
    shared = _shared_in_sample(target, draft)
    if len(differing) <= _MAX_DIFFERING * num_ids:
        relation = Relation.NEARLY_IDENTICAL
    else:
        relation = Relation.UNRELATED if shared < _MIN_SHARED else Relation.OVERLAPPING
    return Comparison(relation, differing, shared)


def _differing_ids(target: Tokenizer, draft: Tokenizer) -> tuple[DifferingId, ...]:
    num_ids = max(target.num_tokens, draft.num_tokens)
    if target.pieces[:num_ids] == draft.pieces[:num_ids] and target.kinds[:num_ids] == draft.kinds[:num_ids]:
        return ()  # as nearly always within a family, and much faster than id by id
    pairs = ((token_id, _meaning(target, token_id), _meaning(draft, token_id)) for token_id in range(num_ids))
    return tuple(DifferingId(*pair) for pair in pairs if pair[1] != pair[2])


def _meaning(tokenizer: Tokenizer, token_id: int) -> str | None:
    if token_id >= len(tokenizer.pieces) or tokenizer.kinds[token_id] == TokenKind.UNUSED:
        return None
    return tokenizer.pieces[token_id]


def _shared_in_sample(target: Tokenizer, draft: Tokenizer) -> float:
    known = ByteVocabulary(draft, draft.num_tokens).ids
    tokens = [target.token_bytes(token_id) for token_id in target.encode(SAMPLE, add_special=False)]
    texts = [data for data in tokens if data]
    return sum(data in known for data in texts) / len(texts) if texts else 0.0
