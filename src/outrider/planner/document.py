"""A plan as a document: everything that was measured and predicted, from and to JSON, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from outrider.errors import UsageError
from outrider.planner.machine import Machine

SCHEMA = 1
_MAX_BYTES = 1 << 24
_STRICT: Mapping[str, Any] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model by which a plan can tell it again.

    Attributes:
        reference: What the user called it.
        name: What the engine calls it, with how it is held.
        fingerprint: Of its file: see :func:`outrider.models.files.fingerprint`.
        file_bytes: Size of its weights' files.
        relation: Of its vocabulary to the target's, in one word; None of the target.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    reference: str
    name: str
    fingerprint: str
    file_bytes: int
    relation: str | None = None


@dataclass(frozen=True, slots=True)
class HeldDraft:
    """How draft models were held: see :class:`~outrider.drafters.compression.DraftOptions`."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    weights: Literal["file", "int8", "int4"]
    vocab: int | None
    text: str | None
    window: int | None


@dataclass(frozen=True, slots=True)
class Settings:
    """How text was made; names as on the command line.

    Attributes:
        measured_tokens: Of each answer, at most.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    temperature: float
    top_k: int | None
    top_p: float | None
    min_p: float | None
    seed: int | None
    stop: tuple[str, ...]
    rule: Literal["auto", "token", "block", "coupled"]
    ctx_size: int
    chat: bool
    draft_options: HeldDraft | None
    measured_tokens: int


@dataclass(frozen=True, slots=True)
class Prompts:
    """What was answered.

    Attributes:
        given: How many prompts there were.
        measured: How many of them were answered in the time there was.
        tokens: Of all answers.
        families: Measured prompts of each family; without, empty.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    given: int
    measured: int
    tokens: int
    families: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PassTime:
    """How long passes of one shape took, in seconds: see :class:`~outrider.planner.passes.Timed`."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    rows: int
    context: int
    sequences: int
    seconds: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Curve:
    """What a pass of any shape costs, in seconds: see :class:`~outrider.drafters.gain.PassCosts`."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    points: tuple[tuple[int, float], ...]
    per_context: float
    per_row_context: float


@dataclass(frozen=True, slots=True)
class Passes:
    """What was timed of one model.

    Attributes:
        timed: Passes one after the other.
        curve: What follows for a pass of any shape. The engine that uses the plan decides by it, as the replays did.
        spread: Of the times of one pass, typically: the distance of the quartiles by the median.
        slower: How much longer passes took among rounds than one after the other, which is what predictions count.
        drift: How much longer they took in the answers that were run than predictions say; None if none were.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    model: str
    timed: tuple[PassTime, ...]
    curve: Curve
    spread: float
    slower: float
    drift: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its interval of 95% over prompts, which one prompt has not."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Acceptance at one place of a draft.

    Attributes:
        acceptance_prob: The chance that its token is accepted if those before it were.
        tested: How many tokens that is from.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    acceptance_prob: Figure
    tested: int


@dataclass(frozen=True, slots=True)
class Speed:
    """Predicted speed.

    Attributes:
        tokens_per_s: Tokens after an answer's first, by the time they take.
        speedup: By plain decoding's on the same prompts.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    tokens_per_s: Figure
    speedup: Figure


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured and is predicted of one choice.

    Attributes:
        drafts, num_speculative_tokens, draft_tree, rule: In the words of ``LLM``; no drafts is plain decoding.
        tokens_per_round: Emitted, the recovered or bonus token included.
        drafted_per_round: Draft tokens.
        positions: Acceptance by place.
        speed: Of one answer at a time.
        families: The same by family.
        side_by_side: Tokens per second in all, by how many answers are made at a time.
        shares: Of the time: the target's passes, the drafts', and the rest.
        measured_tokens_per_s: By running it, if that was asked for; by family below.
        repriced_tokens_per_s: Predicted at what passes took in the other choices' answers meanwhile; by family below.
        differing_answers: How many answers, when run, took other rounds than predictions count; None where chance has a
            say in that.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    name: str
    drafts: tuple[str, ...]
    num_speculative_tokens: int | None
    draft_tree: int
    rule: Literal["auto", "token", "block", "coupled"]
    tokens_per_round: float
    drafted_per_round: float
    positions: tuple[Position, ...]
    speed: Speed
    families: Mapping[str, Speed]
    side_by_side: Mapping[str, float]
    shares: Mapping[str, float]
    measured_tokens_per_s: float | None = None
    measured_families: Mapping[str, float] | None = None
    repriced_tokens_per_s: float | None = None
    repriced_families: Mapping[str, float] | None = None
    differing_answers: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Predicted bytes of a process with the recommended models: see :class:`~outrider.planner.memory.Memory`."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    process: int
    models: Mapping[str, Mapping[str, int]]
    total: int


@dataclass(frozen=True, slots=True)
class LeftOutDraft:
    """A model that was at hand and is no draft, and why."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    reference: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ranks:
    """How often the first, second, ... candidate of a draft model for a place is the one accepted.

    Attributes:
        overlap: The chance that one draft token is accepted, exactly: the sum of the smaller probabilities.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    by_rank: tuple[float, ...]
    overlap: Figure


@dataclass(frozen=True, slots=True)
class Plan:
    """Whether to speculate with a target on a machine, and how.

    Attributes:
        created: In UTC, as ISO 8601 writes it.
        target: The model that answers.
        drafts: The draft models that took part.
        choices: Plain decoding first.
        recommended: The number of the best choice.
        by_family: The number of each family's best choice.
        is_noisy: Whether passes of one shape took such different times that figures may be off by more than they say.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    outrider_plan: int
    created: str
    machine: Machine
    target: PlannedModel
    drafts: tuple[PlannedModel, ...]
    settings: Settings
    prompts: Prompts
    passes: tuple[Passes, ...]
    is_noisy: bool
    choices: tuple[Outcome, ...]
    recommended: int
    by_family: Mapping[str, int]
    ranks: Mapping[str, Ranks]
    memory: MemoryUse
    left_out: tuple[LeftOutDraft, ...] = ()

    def __post_init__(self) -> None:
        """Check what types do not say."""
        if self.outrider_plan != SCHEMA:
            raise ValueError(f"outrider_plan is {self.outrider_plan}; this version reads {SCHEMA}")
        if not self.passes or len(self.passes) != 1 + len(self.drafts):
            raise ValueError(
                f"passes of {len(self.passes)} models are given, of a target and {len(self.drafts)} drafts"
            )
        for number in (self.recommended, *self.by_family.values()):
            if not 0 <= number < len(self.choices):
                raise ValueError(f"choice {number} is recommended, of {len(self.choices)}")

    @property
    def best(self) -> Outcome:
        """The choice that is recommended."""
        return self.choices[self.recommended]

    @property
    def speculates(self) -> bool:
        """Whether any draft is worth its while."""
        return bool(self.best.drafts)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What speaks against what is recommended, a sentence each."""
        if self.speculates:
            plain = [family for family, number in self.by_family.items() if not self.choices[number].drafts]
            return (f"Plain decoding is the best choice for {', '.join(plain)}.",) if plain else ()
        rivals = [one for one in self.choices if one.drafts and one.rule == self.settings.rule]
        ahead = max(rivals, key=lambda one: one.speed.speedup.value, default=None)
        if ahead is None or ahead.speed.speedup.value <= 1:
            return ()
        return (f"{ahead.name} comes out ahead of it, but not clearly: about equal; more prompts may tell.",)


def to_json(plan: Plan) -> str:
    """Return a plan as JSON."""
    return json.dumps(asdict(plan), allow_nan=False)


def from_json(data: bytes, name: str) -> Plan:
    """Read a plan of unknown origin.

    Args:
        data: The file.
        name: What it is called, for messages.

    Raises:
        UsageError: It is no plan; the message says where it goes wrong.
    """
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - slow to import, and plans are rare

    if len(data) > _MAX_BYTES:
        raise UsageError(
            f"{name} has {len(data)} bytes, no plan has more than {_MAX_BYTES}; outrider plan writes plans"
        )
    try:
        return TypeAdapter(Plan).validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise UsageError(
            f"{name} is no plan: {where[:120]}: {first['msg'][:160]}; write one with outrider plan --save"
        ) from error
