"""What drafts for a target, made of the drafters that a user names, at costs measured on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

from outrider.backends.base import Backend
from outrider.backends.native import NativeBackend
from outrider.drafters.base import Drafter
from outrider.drafters.cascade import CascadeDrafter, Member
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.other_vocabulary import OtherVocabularyDrafter
from outrider.drafters.store import TextStore
from outrider.engine.costs import DRAFT_ROWS, TARGET_ROWS, Costs, measure
from outrider.engine.loading import Model, Part
from outrider.errors import UsageError
from outrider.models.fields import shown

# Draft tokens of a round, at most: a model that is right four times in five gains little beyond six, since only one
# draft in four gets there; what is looked up costs nothing and is as long as it is likely. A model with another
# vocabulary is there for being cheap, and stops in doubt: with 12 instead of 6, SmolLM2-135M takes a 1.5B's answers to
# HumanEval from 2.74 to 3.09 times plain decoding's speed (replayed, at 0.12 passes a token), and others no lower.
MODEL_TOKENS, OTHER_VOCABULARY_TOKENS, LOOKUP_TOKENS = 6, 12, 64
# What is assumed of a token of a draft model where it cannot be measured: of a toy, or a drafter from elsewhere.
_TOKEN_COST = 0.3


def measured_costs(parts: Sequence[Part], target: Backend, clock: Callable[[], float], known: Costs | None) -> Costs:
    """Return what the passes of a target and its draft models cost, in passes of one row of the target.

    Of toys and drafters from elsewhere, whose passes cannot be timed, it is what is typical.

    Args:
        parts: Whose draft models are measured, unless they are known.
        target: The target's.
        clock: Seconds from any fixed moment.
        known: From before, in any one unit: those are not measured again.
    """
    ours = known.target if known is not None else _measured(target, clock, TARGET_ROWS) or PassCosts()
    unit = ours.at(1)
    drafts = {}
    for part in parts:
        name, theirs = part.drafter.name, None
        if known is not None:
            theirs = known.drafts.get(name)
        if theirs is None and part.backend is not None and isinstance(target, NativeBackend):
            theirs = _measured(part.backend, clock, DRAFT_ROWS)
        drafts[name] = PassCosts().in_units_of(1 / _TOKEN_COST) if theirs is None else theirs.in_units_of(unit)
    return Costs(ours.in_units_of(unit), drafts)


def _measured(backend: Backend, clock: Callable[[], float], rows: Sequence[int]) -> PassCosts | None:
    if not isinstance(backend, NativeBackend):
        return None
    fitting = [count for count in rows if count <= backend.max_length]
    return measure(backend, clock, rows=fitting) if len(fitting) > 1 else None


def combine(  # noqa: PLR0913 - what a drafter is made of
    parts: Sequence[Part],
    target: Model,
    *,
    store: TextStore | None,
    max_model_tokens: int | None,
    clock: Callable[[], float],
    known: Costs | None = None,
) -> Drafter | None:
    """Return one drafter of all that were named, or None if none was.

    Args:
        parts: In the order of the user's.
        target: Whose passes verify what is drafted.
        store: Past outputs to look into, or None.
        max_model_tokens: The most draft tokens of a model in a round; None for what is usual.
        clock: Seconds from any fixed moment; costs are measured by it.
        known: What passes cost, so far as it need not be measured.
    """
    if not parts:
        return None
    if len(parts) == 1 and not isinstance(parts[0].drafter, NgramDrafter):
        return parts[0].drafter
    costs = measured_costs(parts, target.backend, clock, known)
    for part in parts:
        if isinstance(part.drafter, NgramDrafter) and part.is_ours:
            part.drafter.costs, part.drafter.store = costs.target, store
    if len(parts) == 1:
        return parts[0].drafter
    members = [
        Member(part.drafter)
        if isinstance(part.drafter, NgramDrafter)
        else Member(part.drafter, costs.drafts[part.drafter.name], max_model_tokens or default_length(part.drafter))
        for part in parts
    ]
    return CascadeDrafter(members, vocab_size=target.vocab_size, costs=costs.target)


def native_backends(target: Model, parts: Sequence[Part]) -> list[NativeBackend]:
    """Return those of the models that our core runs, which can tell what they take."""
    backends = [target.backend, *(part.backend for part in parts)]
    return [backend for backend in backends if isinstance(backend, NativeBackend)]


def default_length(drafter: Drafter | None) -> int:
    """Return the most draft tokens of a round where the user does not say."""
    if drafter is None:
        return 0
    if isinstance(drafter, OtherVocabularyDrafter):
        return OTHER_VOCABULARY_TOKENS
    return LOOKUP_TOKENS if isinstance(drafter, NgramDrafter | CascadeDrafter) else MODEL_TOKENS


def check_directory(name: object) -> Path:
    """Return the path of a directory, which need not exist.

    Raises:
        UsageError: It can be the name of none.
    """
    try:
        is_name = isinstance(name, str | Path) and str(name) != "" and b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise UsageError(f"store is {shown(name)}; it must be the path of a directory")
    return Path(cast(str, name))


def open_store(directory: Path, model: Model) -> TextStore:
    """Open the store of a model's past outputs; another vocabulary under the same name has another."""
    digest = sha256(f"{model.name}\0{model.vocab_size}\0".encode())
    for token_id in range(model.vocab_size):
        piece = model.tokenizer.token_bytes(token_id)
        digest.update(len(piece).to_bytes(4, "little") + piece)
    return TextStore(directory, digest.hexdigest()[:32], vocab_size=model.vocab_size)
