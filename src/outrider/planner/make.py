"""The front door: from models, prompts and settings to a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from outrider.drafters.compression import DraftOptions
from outrider.drafters.registry import drafters
from outrider.engine.llm import LLM
from outrider.engine.loading import Model, Resolver, load_model
from outrider.engine.prompts import naming
from outrider.engine.sequence import Rule
from outrider.errors import UsageError
from outrider.metrics.paired import Asked
from outrider.models.at_hand import candidates_for
from outrider.models.files import ModelFiles
from outrider.models.open import open_model
from outrider.planner.choices import Choice, choices
from outrider.planner.compose import Origin, compose, with_run
from outrider.planner.document import HeldDraft, LeftOutDraft, Plan, PlannedModel, Settings
from outrider.planner.lineup import line_up
from outrider.planner.machine import this_machine
from outrider.planner.measuring import Progress, measure
from outrider.planner.memory import Memory, predict_memory
from outrider.planner.meter import Prompted, Setting
from outrider.planner.validate import hold, validate
from outrider.sampling import SamplingParams, Vocabulary, compile_params

# Of each answer so many tokens are measured at most: what comes later is much like it, and prompts differ more.
MEASURED_TOKENS = 96
# Seconds for answers and replays, such that a plan of three drafts takes less than five minutes in all.
BUDGET_S = 180.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What to plan for.

    Attributes:
        target: The model that answers, by reference.
        drafts: References and names of what may draft; nothing at all stands for every model at hand, and lookups.
        prompts: Like those to come; at least one.
        params: How text is made. At most 96 tokens of each answer are measured.
        rule, chat, draft_options, threads, ctx_size: See ``LLM``.
        folder: Where to look for models at hand beside the cache.
        num_run: How many of the most promising choices are run, too, beside plain decoding; 0 for not even that.
        budget_s: See :func:`~outrider.planner.measuring.measure`.
    """

    target: str
    drafts: tuple[str, ...]
    prompts: Sequence[Asked]
    params: SamplingParams
    rule: Rule = "auto"
    chat: bool = True
    draft_options: DraftOptions | None = None
    threads: int | None = None
    ctx_size: int | None = None
    folder: Path | None = None
    num_run: int = 0
    budget_s: float = BUDGET_S


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a plan takes from outside.

    Attributes:
        resolver: From the name of a model to its place on disk.
        environment: Of the process.
        clock: Seconds from any fixed moment.
        today: When the plan is made.
        seed: Of the noise that draws answers, and prompts anew for intervals.
        progress: See :data:`~outrider.planner.measuring.Progress`.
    """

    resolver: Resolver
    environment: Mapping[str, str]
    clock: Callable[[], float]
    today: datetime
    seed: int
    progress: Progress


def make_plan(wish: Wish, around: Surroundings) -> Plan:
    """Return a plan.

    Raises:
        UsageError: There is no prompt, one is empty, or an argument cannot be honoured.
        ContextLengthError: A prompt is too long.
        ModelFileError: A model is missing, damaged or not supported.
        IncompatibleDraftError: A draft that was named cannot draft for the target.
        NumericalError: The target's logits are not numbers.
    """
    if not wish.prompts:
        raise UsageError("there are no prompts; what a draft gains depends on what is asked, so give some like yours")
    target_files = open_model(around.resolver(wish.target))
    names, left_out = _drafts(wish, target_files, around)
    files = {name: open_model(around.resolver(name)) for name in names if name not in drafters()}
    around.progress("loading models", 0.0)
    target = load_model(wish.target, threads=wish.threads, ctx_size=wish.ctx_size, resolver=around.resolver)
    params = replace(wish.params, max_tokens=min(wish.params.max_tokens, MEASURED_TOKENS), n=1)
    setting = Setting(target, compile_params(params, Vocabulary(target.tokenizer, target.vocab_size)), around.clock)
    prompts = _encoded(wish, target)
    lineup = line_up(
        target, names, wish.draft_options, threads=wish.threads, resolver=around.resolver, clock=around.clock
    )
    tried = choices(lineup.contestants, params, wish.rule)
    measured = measure(
        lineup, setting, prompts, tried, seed=around.seed, budget_s=wish.budget_s, progress=around.progress
    )
    origin = Origin(
        created=around.today.isoformat(timespec="seconds"),
        machine=this_machine(around.environment, wish.threads),
        target=_planned(wish.target, target.name, target_files),
        drafts=tuple(
            _planned(name, lineup.models[name].model.name, one, lineup.models[name].relation.value)
            for name, one in files.items()
        ),
        settings=_settings(wish, params, target.backend.max_length),
        num_prompts=len(prompts),
        left_out=left_out,
    )
    memory = _memory(wish, target_files, files, tried, target.backend.max_length)
    plan = compose(origin, measured, memory, around.seed)
    if not wish.num_run:
        return plan
    tried = list(measured.answers)
    order = sorted(range(1, len(tried)), key=lambda number: -plan.choices[number].speed.tokens_per_s.value)
    chosen = [0, *order[: wish.num_run]]
    run = [tried[number] for number in chosen]
    ran = validate(lineup, setting, measured.recordings, run, measured.timed_costs, around.progress)
    return with_run(plan, measured, ran, hold(setting, measured, ran))


def _drafts(wish: Wish, target: ModelFiles, around: Surroundings) -> tuple[list[str], tuple[LeftOutDraft, ...]]:
    """Return what may draft, by reference, each once; and the models at hand that may not."""
    if wish.drafts:
        return list(dict.fromkeys(wish.drafts)), ()
    found, left_out = candidates_for(target, around.environment, wish.folder)
    return [*(one.reference for one in found), "ngram"], tuple(
        LeftOutDraft(one.reference, one.reason) for one in left_out
    )


def _encoded(wish: Wish, target: Model) -> list[Prompted]:
    llm = LLM(target)
    prompted = []
    for one in wish.prompts:
        with naming(f"prompt {one.id}"):
            prompted.append(Prompted(one.id, one.family, tuple(llm.encode(one.text, chat=wish.chat))))
    return prompted


def _planned(reference: str, name: str, files: ModelFiles, relation: str | None = None) -> PlannedModel:
    return PlannedModel(reference, name, files.fingerprint, files.file_bytes, relation)


def _settings(wish: Wish, params: SamplingParams, ctx_size: int) -> Settings:
    return Settings(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        seed=params.seed,
        stop=tuple(params.stop),
        rule=wish.rule,
        ctx_size=ctx_size,
        chat=wish.chat,
        draft_options=None if wish.draft_options is None else HeldDraft(**asdict(wish.draft_options)),
        measured_tokens=params.max_tokens,
    )


def _memory(
    wish: Wish, target: ModelFiles, drafts: Mapping[str, ModelFiles], tried: Sequence[Choice], ctx_size: int
) -> dict[tuple[str, ...], Memory]:
    """Return what a process takes, by the drafts of a choice, models by reference."""
    found = {}
    for choice in tried:
        names = [name for name in choice.drafts if name in drafts]
        whole = predict_memory(target, [drafts[name] for name in names], wish.draft_options, ctx_size=ctx_size)
        models = zip(whole.models, [wish.target, *names], strict=True)
        found[choice.drafts] = replace(whole, models=tuple(replace(one, name=name) for one, name in models))
    return found
