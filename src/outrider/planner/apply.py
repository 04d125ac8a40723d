"""Plans in use: read, held against the machine and the models that they are for, and turned into what ``LLM`` takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from outrider.drafters.compression import DraftOptions
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.engine.loading import Resolver
from outrider.engine.sequence import Rule
from outrider.errors import UsageError
from outrider.models.open import open_model
from outrider.planner.document import Curve, Plan, PlannedModel, from_json
from outrider.planner.machine import this_machine


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan comes to, in the words of ``LLM``; each field is an argument of it."""

    target: str
    draft: list[str]
    draft_options: DraftOptions | None
    num_speculative_tokens: int | None
    draft_tree: int
    rule: Rule
    threads: int
    costs: Costs


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        UsageError: It cannot be read, or is no plan.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the plan {path} cannot be read: {reason}; write one with outrider plan --save") from error
    return from_json(data, str(path))


def apply_plan(
    path: Path,
    *,
    resolver: Resolver,
    environment: Mapping[str, str],
    target: str | None = None,
    threads: int | None = None,
) -> Planned:
    """Return what a plan recommends, if it is for this machine and these models.

    Args:
        path: Of the plan.
        resolver: From the name of a model to its place on disk.
        environment: Of the process.
        target: The model that is to answer; by default the plan's, which it has to be in any case.
        threads: That are to compute; by default the plan's, which it has to be in any case.

    Raises:
        UsageError: The plan cannot be read, or is for other models or another machine: the message says what differs.
        ModelFileError: A model is missing or damaged.
    """
    plan = read_plan(path)
    threads = plan.machine.threads if threads is None else threads
    differences = plan.machine.differences(this_machine(environment, threads))
    if differences:
        raise UsageError(
            f"the plan {path} is for another machine: {'; '.join(differences)}; plan anew here with outrider plan"
        )
    best = plan.best
    _check_model(path, plan.target, target or plan.target.reference, resolver)
    for model in plan.drafts:
        if model.reference in best.drafts:
            _check_model(path, model, model.reference, resolver)
    options = plan.settings.draft_options
    return Planned(
        target=target or plan.target.reference,
        draft=[*best.drafts],
        draft_options=None if options is None or not _uses_models(plan) else DraftOptions(**asdict(options)),
        num_speculative_tokens=best.num_speculative_tokens,
        draft_tree=best.draft_tree,
        rule=best.rule,
        threads=threads,
        costs=costs_of(plan),
    )


def costs_of(plan: Plan) -> Costs:
    """Return what passes cost by a plan, in seconds, so that nobody need measure them again."""
    target, *drafts = plan.passes
    return Costs(_costs(target.curve), {one.model: _costs(one.curve) for one in drafts})


def _costs(curve: Curve) -> PassCosts:
    return PassCosts(curve.points, curve.per_context, curve.per_row_context)


def _uses_models(plan: Plan) -> bool:
    return any(model.reference in plan.best.drafts for model in plan.drafts)


def _check_model(path: Path, planned: PlannedModel, reference: str, resolver: Resolver) -> None:
    files = open_model(resolver(reference))
    if files.fingerprint != planned.fingerprint:
        raise UsageError(
            f"the plan {path} is for another model: {reference} has the fingerprint {files.fingerprint} and "
            f"{files.file_bytes} bytes, {planned.name} of the plan {planned.fingerprint} and {planned.file_bytes}; "
            "plan anew with outrider plan, or name the model that was planned for"
        )
