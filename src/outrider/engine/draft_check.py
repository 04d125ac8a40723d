"""What a draft model's vocabulary is worth to a target, before anything is generated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.backends.base import Rows
from outrider.engine.loading import Model, ModelRef, Opened, Resolver, load_model, open_pair, resolve_quietly
from outrider.errors import UsageError
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.models.vocabularies import Comparison, DifferingId, Relation, compare_vocabularies
from outrider.sampling.target_law import plain_law

# Rows of logits at a time: 20 MB for a vocabulary of 150,000.
_ROWS = 32


@dataclass(frozen=True, slots=True)
class DraftCheck:
    """How a draft's vocabulary relates to its target's.

    Attributes:
        target: The target's name.
        draft: The draft's name.
        comparison: How the two vocabularies relate, and what the engine does about it.
        num_tokens: Of the target and of the draft, without padding.
        vocab_sizes: The same with padding.
        num_shared: How many of the target's tokens, the control tokens included, the draft has, too.
        shared_probability: How much of the target's probability they hold, on average over the positions of some texts;
            None if the target was not run.
        file_bytes: Sizes of the target's and of the draft's weights; None of models that have no files.
    """

    target: str
    draft: str
    comparison: Comparison
    num_tokens: tuple[int, int]
    vocab_sizes: tuple[int, int]
    num_shared: int
    shared_probability: float | None
    file_bytes: tuple[int, int] | None = None

    @property
    def is_smaller(self) -> bool:
        """Whether the draft is smaller than the target, as far as their files say; otherwise it can hardly pay."""
        return self.file_bytes is None or self.file_bytes[1] < self.file_bytes[0]

    @property
    def telling_ids(self) -> tuple[DifferingId, ...]:
        """The ids that differ, where it is worth knowing which: not where the numbering is another altogether."""
        return self.comparison.differing_ids if self.comparison.relation is Relation.NEARLY_IDENTICAL else ()

    def to_json(self) -> dict[str, Any]:
        """Return what ``outrider models check --json`` prints."""
        return {
            "target": self.target,
            "draft": self.draft,
            "relation": self.comparison.relation.value,
            "works": self.comparison.works,
            "consequence": self.comparison.consequence,
            "num_tokens": dict(zip(("target", "draft"), self.num_tokens, strict=True)),
            "vocab_size": dict(zip(("target", "draft"), self.vocab_sizes, strict=True)),
            "num_shared_tokens": self.num_shared,
            "shared_in_sample": self.comparison.shared_in_sample,
            "shared_probability": self.shared_probability,
            "file_bytes": None
            if self.file_bytes is None
            else dict(zip(("target", "draft"), self.file_bytes, strict=True)),
            "num_differing_ids": len(self.comparison.differing_ids),
            "differing_ids": [
                {"id": one.token_id, "target": one.target, "draft": one.draft} for one in self.telling_ids
            ],
        }


def check_draft(
    target: ModelRef, draft: ModelRef, *, measure_on: Sequence[str] = (), resolver: Resolver = resolve_quietly
) -> DraftCheck:
    """Compare the vocabularies of two models. No weights are read, but for the target's if it is to be measured.

    Args:
        target: As for ``LLM``.
        draft: As for ``LLM``, a model.
        measure_on: Texts to run the target over, to find ``shared_probability``, each as far as its context goes.
        resolver: See ``LLM``.

    Raises:
        UsageError: A reference that cannot be honoured, or texts too short to be run over.
        ModelFileError: A model is missing, damaged or not supported.
    """
    ours, theirs = open_pair(target, draft, resolver)
    one, other = ours.tokenizer, theirs.tokenizer
    joint = JointVocabulary(one, one.num_tokens, other, other.num_tokens)
    shared = joint.shared_ids
    probability = None
    if measure_on:
        model = load_model(target, resolver=resolver)
        probability = shared_probability(model, measure_on, shared[shared < model.vocab_size])
    return DraftCheck(
        target=ours.name,
        draft=theirs.name,
        comparison=compare_vocabularies(one, other),
        num_tokens=(one.num_tokens, other.num_tokens),
        vocab_sizes=(one.vocab_size, other.vocab_size),
        num_shared=len(shared),
        shared_probability=probability,
        file_bytes=(ours.files.file_bytes, theirs.files.file_bytes)
        if isinstance(ours, Opened) and isinstance(theirs, Opened)
        else None,
    )


def shared_probability(model: Model, texts: Sequence[str], shared_ids: NDArray[np.intp]) -> float:
    """Return how much probability a model gives to some tokens, on average over the positions of texts.

    Raises:
        UsageError: A text does not fit the model's context, or none has two tokens.
    """
    shares = [_shared_probability(model, text, shared_ids) for text in texts]
    num_positions = sum(map(len, shares))
    if num_positions == 0:
        raise UsageError("the texts to measure on have no token that follows another; give longer ones")
    return float(sum(map(np.sum, shares)) / num_positions)


def _shared_probability(model: Model, text: str, shared_ids: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the share at each position of one text but the first, as far as the model's context goes."""
    token_ids = model.tokenizer.encode(text)[: model.backend.max_length]
    shares = np.empty(max(len(token_ids) - 1, 0))
    sequence_id = model.backend.open_sequence()
    for start in range(0, len(shares), _ROWS):
        fed = token_ids[start : min(start + _ROWS, len(shares))]
        logits = model.backend.forward([Rows(sequence_id, fed, num_logits=len(fed))])
        for row, one in enumerate(logits[:, : model.vocab_size], start=start):
            shares[row] = np.asarray(plain_law(one))[shared_ids].sum()
    model.backend.close_sequence(sequence_id)
    return shares
