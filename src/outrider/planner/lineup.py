"""The models of a plan, each loaded once, and the drafters that choices make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from outrider.backends.metered import MeteredBackend
from outrider.drafters.compression import DraftOptions
from outrider.drafters.registry import create_drafter, drafters
from outrider.engine.combining import combine, default_length
from outrider.engine.costs import Costs
from outrider.engine.loading import Model, Part, Resolver, attach, load_draft
from outrider.models.vocabularies import Relation
from outrider.planner.choices import Choice, Contestant
from outrider.planner.meter import Drafting


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A model that drafts.

    Attributes:
        model: Held as the engine holds drafts.
        metered: Its backend, whose passes are noted.
        relation: Of its vocabulary to the target's.
    """

    model: Model
    metered: MeteredBackend
    relation: Relation

    @property
    def has_targets_tokens(self) -> bool:
        """Whether it drafts token by token, in the target's own numbering."""
        return self.relation is not Relation.OVERLAPPING


@dataclass(frozen=True, slots=True)
class Lineup:
    """A target and all that may draft for it.

    Attributes:
        target: The model that answers.
        models: The draft models, by reference.
        others: Drafters that need no model, by name.
        clock: Seconds from any fixed moment.
    """

    target: Model
    models: Mapping[str, DraftModel]
    others: tuple[str, ...]
    clock: Callable[[], float]

    @property
    def contestants(self) -> list[Contestant]:
        """What there is to choose from, models first."""
        models = [
            Contestant(name, is_model=True, is_other_vocabulary=not one.has_targets_tokens)
            for name, one in self.models.items()
        ]
        return [*models, *map(Contestant, self.others)]

    def drafting(self, choice: Choice, costs: Costs) -> Drafting:
        """Return what drafts for a choice, made as ``LLM`` makes it.

        Args:
            choice: Of drafts in this line-up; the n-gram drafter may join any.
            costs: Of the passes of these models.
        """
        limit = choice.num_speculative_tokens
        drafter = combine(
            [self._part(name, choice.draft_tree) for name in choice.drafts],
            self.target,
            store=None,
            max_model_tokens=limit,
            clock=self.clock,
            known=costs,
        )
        return Drafting(
            drafter,
            default_length(drafter) if limit is None else limit,
            choice.draft_tree,
            choice.rule,
            tuple(self.models[name].metered for name in choice.drafts if name in self.models),
        )

    def _part(self, name: str, draft_tree: int) -> Part:
        if name not in self.models:
            return Part(create_drafter(name), is_ours=True)
        one = self.models[name]
        model = replace(one.model, backend=one.metered)
        return Part(attach(model, self.target, one.relation, draft_tree), one.model.backend, is_ours=True)


def line_up(  # noqa: PLR0913 - what LLM takes
    target: Model,
    drafts: Sequence[str],
    draft_options: DraftOptions | None = None,
    *,
    threads: int | None,
    resolver: Resolver,
    clock: Callable[[], float],
) -> Lineup:
    """Load all drafts.

    Args:
        target: Loaded already.
        drafts: References and names, each once.
        draft_options: See ``LLM``.
        threads: See ``LLM``.
        resolver: See ``LLM``.
        clock: Seconds from any fixed moment.

    Raises:
        UsageError, ModelFileError, IncompatibleDraftError: See ``LLM``.
    """
    models: dict[str, DraftModel] = {}
    for name in drafts:
        if name not in drafters():
            model, relation = load_draft(name, target, draft_options, threads=threads, resolver=resolver)
            if model.name in (target.name, *(one.model.name for one in models.values())):
                model = replace(model, name=f"{model.name}, {name}")  # files may share a name, and passes go by names
            models[name] = DraftModel(model, MeteredBackend(model.backend, model.name, clock), relation)
    return Lineup(target, models, tuple(name for name in drafts if name not in models), clock)
