"""Models and drafters from what a user names them by."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias, cast

from outrider.backends.base import Backend
from outrider.backends.metered import MeteredBackend, Pass
from outrider.backends.native import NativeBackend, WeightFormat
from outrider.drafters.base import Drafter
from outrider.drafters.compression import DraftOptions, describe
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.other_vocabulary import OtherVocabularyDrafter
from outrider.drafters.registry import create_drafter, drafters
from outrider.errors import DownloadError, IncompatibleDraftError, ModelFileError, UsageError
from outrider.models.at_hand import candidates_for
from outrider.models.chat_template import ChatTemplate
from outrider.models.fields import shown
from outrider.models.files import ModelFiles
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.models.open import open_model
from outrider.models.resolve import resolve
from outrider.models.tokenizer import Tokenizer
from outrider.models.vocabularies import Relation, compare_vocabularies

# A model that "auto" takes has at most this share of the target's bytes: what reads more is seldom worth its passes.
_CLEARLY_SMALLER = 0.6
# Names that stand for another draft, or for none.
_STAND_FOR = {"none": None}
AUTO = "auto"
_NOTED = 64  # passes of a model between two rounds that draft


@dataclass(frozen=True, slots=True)
class Model:
    """A model ready to run.

    Attributes:
        name: For people and for the result document.
        tokenizer: Of the same vocabulary as the backend; either may have more padding at its end.
        chat_template: None if the model has none.
        context_length: The most tokens the model can be given, which may be more than the backend has room for.
        path: Where its files lie, if it came from any.
    """

    name: str
    backend: Backend
    tokenizer: Tokenizer
    chat_template: ChatTemplate | None
    context_length: int
    path: Path | None = None

    @property
    def vocab_size(self) -> int:
        """How many ids have both a token and a logit."""
        return min(self.tokenizer.num_tokens, self.backend.vocab_size)


@dataclass(frozen=True, slots=True)
class Part:
    """One drafter of a target.

    Attributes:
        backend: The model that it runs on, if it does.
        is_ours: Whether it was made here, and has no other user.
        passes: Where those of the model are noted, the last of them, if they are.
    """

    drafter: Drafter
    backend: Backend | None = None
    is_ours: bool = False
    passes: MutableSequence[Pass] | None = None


ModelRef: TypeAlias = str | Path | Model
DraftRef: TypeAlias = ModelRef | Drafter | None
# From a reference to the place on disk, downloading what is not there.
Resolver: TypeAlias = Callable[[str], Path]


def resolve_quietly(reference: str) -> Path:
    """Resolve a reference with the user's cache directory, and show no progress."""
    return resolve(reference, os.environ)


@dataclass(frozen=True, slots=True)
class Opened:
    """A model whose weights have not been read."""

    name: str
    files: ModelFiles
    path: Path

    @property
    def tokenizer(self) -> Tokenizer:
        """See :class:`Model`."""
        return self.files.tokenizer

    @property
    def context_length(self) -> int:
        """See :class:`Model`."""
        return self.files.config.context_length


def load_model(
    reference: ModelRef,
    *,
    threads: int | None = None,
    ctx_size: int | None = None,
    resolver: Resolver = resolve_quietly,
) -> Model:
    """Load a model that several LLMs are to share; arguments and errors are those of ``LLM``."""
    _check_reference("the model", reference)
    return _load(_open(reference, resolver), threads, ctx_size)


def open_pair(target: ModelRef, draft: ModelRef, resolver: Resolver) -> tuple[Opened | Model, Opened | Model]:
    """Open a target and a draft model, without reading their weights; errors are those of :func:`load_pair`."""
    _check_reference("target", target)
    opened = _open(target, resolver)
    opened_draft = _open_draft(draft, resolver)
    if not isinstance(opened_draft, Opened | Model):
        raise UsageError(f"the draft is {shown(draft)}, which is no model and fits every target; name a draft model")
    return opened, opened_draft


def load_pair(  # noqa: PLR0913 - what LLM takes
    target: ModelRef,
    draft: DraftRef | Sequence[DraftRef],
    draft_options: DraftOptions | None = None,
    *,
    threads: int | None,
    ctx_size: int | None,
    resolver: Resolver,
    draft_tree: int = 0,
    clock: Callable[[], float] | None = None,
) -> tuple[Model, list[Part]]:
    """Load a target and whatever drafts for it; that they fit is found out before the weights of either are read.

    Passes of draft models are noted if there is a clock.

    Raises:
        UsageError: A reference or an argument that cannot be honoured.
        ModelFileError: A model is missing, damaged or not supported.
        IncompatibleDraftError: The draft's vocabulary has too little in common with the target's.
    """
    _check_reference("target", target)
    opened = _open(target, resolver)
    references = [one for name in _several(draft) for one in (_at_hand(opened) if name == AUTO else [name])]
    opened_drafts = [_open_draft(one, resolver) for one in references]
    _check_compression(opened, opened_drafts, draft_options)
    relations = [
        _relation(opened, one, draft_tree) if isinstance(one, Opened | Model) else None for one in opened_drafts
    ]
    if draft_tree and all(one is None or isinstance(one, str) for one in references) and not any(relations):
        why = "of ours only a draft model drafts trees, and there is none; leave it out"
        raise UsageError(f"draft_tree is {draft_tree}; {why}")
    model = _load(opened, threads, ctx_size)
    parts = []
    for reference, one, relation in zip(references, opened_drafts, relations, strict=True):
        if isinstance(one, Opened | Model) and relation is not None:
            draft_model = _load_draft(one, model, draft_options, threads)
            noted, passes = with_passes(draft_model, clock)
            drafter = attach(noted, model, relation, draft_tree)
            parts.append(Part(drafter, draft_model.backend, is_ours=True, passes=passes))
        elif isinstance(one, Drafter):
            parts.append(Part(one, is_ours=isinstance(reference, str)))
    return model, parts


def with_passes(model: Model, clock: Callable[[], float] | None) -> tuple[Model, MutableSequence[Pass] | None]:
    """Return a model whose passes are noted, and where. Those of toys, or without a clock, are not."""
    if clock is None or not isinstance(model.backend, NativeBackend):
        return model, None
    passes: deque[Pass] = deque(maxlen=_NOTED)
    return replace(model, backend=MeteredBackend(model.backend, model.name, clock, passes)), passes


def load_draft(
    reference: ModelRef,
    target: Model,
    draft_options: DraftOptions | None = None,
    *,
    threads: int | None = None,
    resolver: Resolver = resolve_quietly,
) -> tuple[Model, Relation]:
    """Load a draft model as :func:`load_pair` does, for several drafters to share, and say how its vocabulary relates.

    Raises:
        UsageError, ModelFileError, IncompatibleDraftError: See :func:`load_pair`.
    """
    _, draft = open_pair(target, reference, resolver)
    relation = _relation(target, draft, draft_tree=0)
    return _load_draft(draft, target, draft_options, threads), relation


def _load_draft(draft: Opened | Model, target: Model, options: DraftOptions | None, threads: int | None) -> Model:
    return _load(draft, threads, min(target.backend.max_length, draft.context_length), options or DraftOptions())


def _relation(target: Opened | Model, draft: Opened | Model, draft_tree: int) -> Relation:
    comparison = compare_vocabularies(target.tokenizer, draft.tokenizer)
    if not comparison.works:
        raise IncompatibleDraftError(f"{draft.name} as a draft for {target.name}: {comparison.consequence}")
    if draft_tree and comparison.relation is Relation.OVERLAPPING:
        raise UsageError(
            f"draft_tree is {draft_tree}, but {draft.name} has another vocabulary than {target.name} and proposes no "
            "trees; set it to 0"
        )
    return comparison.relation


def _several(draft: DraftRef | Sequence[DraftRef]) -> Sequence[DraftRef]:
    """Return the drafts of a list, or of names with commas between them, as they are; lookups join a single model."""
    if isinstance(draft, list | tuple):
        return draft
    if isinstance(draft, str) and "," in draft and not Path(draft).exists():
        return [name.strip() for name in draft.split(",")]
    is_model = isinstance(draft, Path | Model) or (
        isinstance(draft, str) and draft not in {*drafters(), *_STAND_FOR, AUTO}
    )
    one = cast(DraftRef, draft)
    return [one, "ngram"] if is_model else [one]


def _at_hand(target: Opened | Model) -> list[DraftRef]:
    """Return what "auto" stands for: lookups, and the likeliest of the clearly smaller models that are here."""
    if target.path is None:
        return ["ngram"]
    files = target.files if isinstance(target, Opened) else open_model(target.path)
    found, _ = candidates_for(files, os.environ, target.path.absolute().parent)
    small = [one for one in found if one.files.file_bytes <= _CLEARLY_SMALLER * files.file_bytes]
    return [*(one.reference for one in small[:1]), "ngram"]


def attach(draft: Model, target: Model, relation: Relation, draft_tree: int = 0) -> Drafter:
    """Return the drafter that a draft model makes for a target, by how their vocabularies relate."""
    if relation is Relation.OVERLAPPING:
        return OtherVocabularyDrafter(
            draft.backend,
            JointVocabulary(target.tokenizer, target.vocab_size, draft.tokenizer, draft.vocab_size),
            name=draft.name,
            stop_ids=target.tokenizer.eos_ids,
        )
    return DraftModelDrafter(
        draft.backend,
        vocab_size=target.vocab_size,
        name=draft.name,
        stop_ids=target.tokenizer.eos_ids,
        tree_size=draft_tree,
    )


def _check_reference(name: str, reference: object, or_else: str = "") -> None:
    text = str(reference) if isinstance(reference, str | Path) else None
    if not isinstance(reference, Model) and (not text or "\0" in text):
        wanted = f"a path, a catalog name, hf:owner/repo[/file] or a loaded model{or_else}"
        raise UsageError(f"{name} is {shown(reference)}; it must be {wanted}")


def _check_compression(
    target: Opened | Model, drafts: Sequence[Opened | Model | Drafter | None], options: DraftOptions | None
) -> None:
    if isinstance(target, Model) and isinstance(target.backend, NativeBackend) and target.backend.is_compressed:
        raise UsageError(f"target is {target.name}, which was compressed to draft and is no longer exact; load it anew")
    if options is not None and not isinstance(options, DraftOptions):
        raise UsageError(f"draft_options is {shown(options)}; it must be DraftOptions, or None")
    if options is not None and not any(isinstance(draft, Opened) for draft in drafts):
        what = ", ".join("none" if draft is None else draft.name for draft in drafts)
        raise UsageError(
            f"draft_options is given, but the draft is {what}; they are for a draft model that is yet to be loaded"
        )


def _open(reference: ModelRef, resolver: Resolver) -> Opened | Model:
    if isinstance(reference, Model):
        return reference
    path = resolver(reference) if isinstance(reference, str) else reference
    files = open_model(path)
    return Opened(str(reference).rsplit("/", 1)[-1].removesuffix(".gguf") or files.name, files, path)


def _open_draft(reference: DraftRef, resolver: Resolver) -> Opened | Model | Drafter | None:
    if isinstance(reference, str):
        reference = _STAND_FOR.get(reference, reference)
    if reference is None or (isinstance(reference, Drafter) and not isinstance(reference, type)):
        return reference
    _check_reference("draft", reference, ", a drafter's name, a drafter or None")
    model = cast(ModelRef, reference)
    if isinstance(model, str) and model in drafters():
        return create_drafter(model)
    try:
        return _open(model, resolver)
    except UsageError as error:
        near = get_close_matches(str(model).lower(), [*drafters(), *_STAND_FOR], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"draft: {hint}{error}; drafters that need no model: {', '.join(drafters())}") from error
    except (ModelFileError, DownloadError) as error:
        raise type(error)(f"draft: {error}") from error


def _load(
    model: Opened | Model, threads: int | None, ctx_size: int | None, draft_options: DraftOptions | None = None
) -> Model:
    """Load a model: exactly as its file has it, unless there are options, for which it has to be a draft."""
    if isinstance(model, Model):
        return model
    limit = model.context_length
    if ctx_size is not None and not (type(ctx_size) is int and 2 <= ctx_size <= limit):
        raise UsageError(f"ctx_size is {ctx_size!r}; {model.name} takes from 2 to {limit} tokens")
    files = model.files
    config, tokenizer = files.config, files.tokenizer
    weights: WeightFormat = "file"
    head_tokens, name = None, model.name
    if draft_options is not None:
        weights, head_tokens = draft_options.weights, draft_options.head_tokens(tokenizer, config.vocab_size)
        config = replace(config, cache_window=draft_options.window or 0)
        done = describe(weights, head_tokens, draft_options.window)
        name += f" ({done})" if done else ""
    backend = NativeBackend.load(
        config, files.tensors, max_length=ctx_size or limit, threads=threads, weights=weights, head_tokens=head_tokens
    )
    return Model(name, backend, tokenizer, files.chat_template, limit, model.path)
