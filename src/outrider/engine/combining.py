"""What drafts for a target, made of the drafters that a user names, at costs measured on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, MutableSequence, Sequence
from hashlib import sha256
from pathlib import Path
from typing import cast

from outrider.backends.base import Backend, Rows
from outrider.backends.metered import Pass
from outrider.backends.native import NativeBackend
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.store import TextStore
from outrider.engine.costs import DRAFT_ROWS, TARGET_ROWS, Costs, least, measure
from outrider.engine.loading import Model, Part, with_passes
from outrider.errors import UsageError
from outrider.models.fields import shown
from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params
from outrider.verification import CoinSource, Purpose

# Draft tokens of a round, at most, of a model, which stops where one more is not worth its cost, and of what is looked
# up for nothing; and of a drafter from elsewhere that is asked by itself, whose costs nobody knows.
MODEL_TOKENS, LOOKUP_TOKENS, UNKNOWN_TOKENS = 12, 64, 6
# So often the models take turns at being timed: whatever slows the machine down for a second must not make one of them
# look dear beside the others for as long as they stay loaded.
_VISITS = 2
# What is assumed of a token of a draft model where it cannot be measured: of a toy, or a drafter from elsewhere.
_TOKEN_COST = 0.3
_SAMPLE = """The old lighthouse stands at the end of the road, and from its top you can see the whole of the bay.
def mean(values):
    if len(values) == 0:
        return 0.0
    return sum(values) / len(values)
"""


def measured_costs(
    parts: Sequence[Part], target: Backend, clock: Callable[[], float], known: Costs | None
) -> tuple[PassCosts, list[PassCosts]]:
    """Return what the passes of a target and of each drafter's model cost, in seconds.

    Of toys and drafters from elsewhere, whose passes cannot be timed, it is what is typical.

    Args:
        parts: Whose draft models are measured, unless they are known.
        target: The target's.
        clock: Seconds from any fixed moment.
        known: From before: those are not measured again, but where two draft models go by one name.
    """
    names = [part.drafter.name for part in parts]
    theirs = [known.drafts.get(name) if known is not None and names.count(name) == 1 else None for name in names]
    visits: list[list[PassCosts]] = [[] for _ in parts]
    target_visits: list[PassCosts] = []
    for _ in range(_VISITS):
        if known is None:
            target_visits += _measured(target, clock, TARGET_ROWS)
        for part, own, cost in zip(parts, visits, theirs, strict=True):
            if cost is None and isinstance(target, NativeBackend):
                own.extend(_measured(part.backend, clock, DRAFT_ROWS))
    ours = known.target if known is not None else least(target_visits) or PassCosts()
    typical = PassCosts().in_units_of(1 / (_TOKEN_COST * ours.at(1)))
    return ours, [cost or least(own) or typical for cost, own in zip(theirs, visits, strict=True)]


def _measured(backend: Backend | None, clock: Callable[[], float], rows: Sequence[int]) -> list[PassCosts]:
    """Return what one visit to a model finds, or nothing where its passes cannot be timed."""
    if not isinstance(backend, NativeBackend):
        return []
    fitting = [count for count in rows if count <= backend.max_length]
    share = backend.bytes_per_token() / backend.weight_bytes
    return [measure(backend, clock, rows=fitting, cache_share=share)] if len(fitting) > 1 else []


def combine(  # noqa: PLR0913 - what a drafter is made of
    parts: Sequence[Part],
    target: Model,
    *,
    store: TextStore | None,
    max_model_tokens: int | None,
    clock: Callable[[], float],
    known: Costs | None = None,
    passes: MutableSequence[Pass] | None = None,
) -> Drafter | None:
    """Return one drafter of all that were named, or None if none was.

    Args:
        parts: In the order of the user's.
        target: Whose passes verify what is drafted.
        store: Past outputs to look into, or None.
        max_model_tokens: The most draft tokens of a model in a round; None for what is usual.
        clock: Seconds from any fixed moment; costs are measured by it.
        known: What passes cost, so far as it need not be measured.
        passes: Where those of the target are noted, which correct that; None if nobody notes them.
    """
    if not parts:
        return None
    if len(parts) == 1 and not parts[0].is_ours:
        return parts[0].drafter
    costs, model_costs = measured_costs(parts, target.backend, clock, known)
    members = []
    for part, model_cost in zip(parts, model_costs, strict=True):
        if not isinstance(part.drafter, NgramDrafter):
            chance, problem = (None, None) if known is not None else impression(part, target)
            length = max_model_tokens or MODEL_TOKENS
            members.append(Member(part.drafter, model_cost, length, chance, problem, part.passes))
            continue
        if part.is_ours:
            part.drafter.store = store
        members.append(Member(part.drafter, hear_costs=part.drafter.hear_costs if part.is_ours else None))
    return CascadeDrafter(members, vocab_size=target.vocab_size, costs=costs, passes=passes)


def combine_timed(  # noqa: PLR0913 - see combine
    parts: Sequence[Part],
    target: Model,
    *,
    store: TextStore | None,
    max_model_tokens: int | None,
    clock: Callable[[], float],
    known: Costs | None = None,
) -> tuple[Drafter | None, Backend]:
    """Return what :func:`combine` does, and the target's backend, whose passes are noted for it if it heeds them."""
    noted, passes = with_passes(target, clock)
    drafter = combine(
        parts, target, store=store, max_model_tokens=max_model_tokens, clock=clock, known=known, passes=passes
    )
    return drafter, noted.backend if isinstance(drafter, CascadeDrafter) else target.backend


def impression(part: Part, target: Model) -> tuple[float | None, str | None]:
    """Return how often a draft model's first choice is the target's, on a short text that no answer resembles.

    Enough to tell a draft that is good for nothing, before any answer pays for finding out. None if there is no model;
    and what went wrong, if it broke off.
    """
    if not isinstance(part.backend, NativeBackend) or not isinstance(target.backend, NativeBackend):
        return None, None
    token_ids = target.tokenizer.encode(_SAMPLE)[: target.backend.max_length]
    sequence_id = target.backend.open_sequence()
    try:
        logits = target.backend.forward([Rows(sequence_id, token_ids, num_logits=len(token_ids))])
        choices = logits[:, : target.vocab_size].argmax(axis=1).tolist()
    finally:
        target.backend.close_sequence(sequence_id)
    shaper = LawShaper(compile_params(SamplingParams(), Vocabulary(target.tokenizer, target.vocab_size)), token_ids)
    coins = CoinSource(0).at(0, Purpose.DRAFT)  # a greedy draft tosses none
    places = range(len(token_ids) // 3, len(token_ids))
    num_right, problem = 0, None
    for place in places:
        (draft,) = part.drafter.propose([DraftRequest(_SAMPLE, token_ids[: place + 1], 1, shaper, coins)])
        num_right += draft.token_ids[:1] == (choices[place],)
        problem = problem or draft.problem
    part.drafter.release(_SAMPLE)
    return num_right / len(places), problem


def native_backends(target: Model, parts: Sequence[Part]) -> list[NativeBackend]:
    """Return those of the models that our core runs, which can tell what they take."""
    backends = [target.backend, *(part.backend for part in parts)]
    return [backend for backend in backends if isinstance(backend, NativeBackend)]


def default_length(drafter: Drafter | None) -> int:
    """Return the most draft tokens of a round where the user does not say."""
    if drafter is None:
        return 0
    if isinstance(drafter, CascadeDrafter):
        return max(member.max_tokens for member in drafter.members)
    return LOOKUP_TOKENS if isinstance(drafter, NgramDrafter) else UNKNOWN_TOKENS


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
