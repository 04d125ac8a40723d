"""``outrider audit pair``: a target with its draft, on this machine.

Texts without chance are compared with plain decoding's, token by token; texts with chance are drawn in great number
and held against the exact law. The same draws by a wrong variant must be found out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from outrider.audit.certificate import Certificate, Claim
from outrider.audit.draws import WatchedDrafter
from outrider.audit.greedy import COSTS, FREE, Equalities
from outrider.audit.memory import Memory, RememberedBackend
from outrider.audit.provenance import model_files, versions
from outrider.audit.sampled import Budget, Pair, SamplingAudit, sampling_evidence
from outrider.audit.state import Progress, fingerprint, load, save
from outrider.audit.tally import drafted, joint_name
from outrider.drafters.compression import DraftOptions
from outrider.engine.combining import combine
from outrider.engine.costs import Costs
from outrider.engine.loading import DraftRef, Model, ModelRef, Part, Resolver, attach, load_pair, open_pair
from outrider.engine.rules import parse_rule
from outrider.errors import UsageError
from outrider.models.chat import encode_chat
from outrider.models.vocabularies import compare_vocabularies
from outrider.sampling import SamplingParams

GREEDY, SEEDED = "greedy text", "sampled text with a seed"
NOTES = (
    "Places to draw from were chosen, before anything was drawn, where a common fault would show most: where the "
    "target is all but certain, or nothing is drafted, no verifier can be told from another.",
    "What differs only within a cell of tokens that are counted together is not seen.",
    "The first draws at each place ran the target; later ones looked up rows of logits that a plain pass had computed.",
)
_SEED_OF_TEXTS = 11  # of the sampled texts that are compared
_NO_MODELS = {"ngram", "none", "None"}
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be audited, and how.

    Attributes:
        target, draft: As :class:`~outrider.engine.llm.LLM` takes them.
        params: How tokens are chosen in what is drawn; above temperature 0.
        rule: See :mod:`outrider.engine.rules`.
        draft_options, draft_tree, chat: See :class:`~outrider.engine.llm.LLM`.
        lengths: Draft tokens a round that texts are compared at; draws are made at the first.
        threads: The same for threads; None for the usual number.
        batches: Answers side by side that texts are compared at.
        num_texts, text_tokens: How many prompts are answered for that, and how long at most.
        budget: How much is drawn.
        claim: What is to be shown.
    """

    target: ModelRef
    draft: DraftRef | Sequence[DraftRef]
    params: SamplingParams
    rule: str = "auto"
    draft_options: DraftOptions | None = None
    draft_tree: int = 0
    chat: bool = True
    lengths: tuple[int, ...] = (6, 1)
    threads: tuple[int | None, ...] = (None,)
    batches: tuple[int, ...] = (1, 3)
    num_texts: int = 6
    text_tokens: int = 32
    budget: Budget = field(default_factory=Budget)
    claim: Claim = field(default_factory=Claim)


def audit_pair(  # noqa: PLR0913 - what is audited, and where what is found goes
    wish: Wish,
    prompts: Sequence[tuple[str, str]],
    *,
    command: str,
    now: str,
    resolver: Resolver,
    state: Path | None = None,
    report: Report = lambda _text: None,
) -> Certificate:
    """Audit a pair, from where an earlier run left off if there is a state of it.

    Args:
        wish: What, and how.
        prompts: Name and text of each.
        command: That runs it again.
        now: The time, for the certificate.
        resolver: From the name of a model to its place on disk.
        state: Where to keep what has been counted, or None.
        report: Is told how it goes, a line at a time.

    Raises:
        UsageError: An argument is out of range, or the state is of another audit.
        ModelFileError: A model is missing, damaged or not supported.
        IncompatibleDraftError: The draft's vocabulary has too little in common with the target's.
    """
    _check(wish, prompts)
    rule = parse_rule(wish.rule)
    subject = {"target": _described(wish.target, resolver), "draft": _described(wish.draft, resolver)}
    settings = _settings(wish, prompts)
    audit = fingerprint({"subject": subject, "settings": settings, "versions": versions()})
    progress = Progress() if state is None else load(state, audit)

    def keep() -> None:
        if state is not None:
            save(state, progress, audit)

    if not progress.equalities:
        _compare_texts(wish, [text for _, text in prompts[: wish.num_texts]], progress, resolver, report)
        keep()
    target, parts = load_wished(wish, wish.threads[0], resolver)
    drafter = remembering_drafter(wish, target, parts, resolver)
    pair = Pair(target, WatchedDrafter(drafter), wish.lengths[0], wish.draft_tree, rule)
    places = _draw(wish, pair, prompts, progress, report, keep)
    evidence, controls = sampling_evidence(progress, wish.budget.num_tokens)
    return Certificate(
        kind="pair",
        created=now,
        command=command,
        subject={**subject, "drafter": drafter.name},
        settings={**settings, "places": places, "draft lengths": drafted(progress.tallies)},
        versions={**versions(), "threads": str(getattr(target.backend, "threads", "none"))},
        claim=replace(wish.claim, shown_by=joint_name(wish.budget.num_tokens)),
        evidence=evidence,
        controls=controls,
        notes=NOTES,
    )


def _draw(  # noqa: PLR0913 - what is drawn, and where what is found goes
    wish: Wish,
    pair: Pair,
    prompts: Sequence[tuple[str, str]],
    progress: Progress,
    report: Report,
    keep: Callable[[], None],
) -> list[str]:
    """Draw what has not been drawn yet; return the names of the places."""
    sampling = SamplingAudit(pair, wish.params, wish.budget, wish.claim)
    report("looking for places to draw from")
    places = sampling.prefixes([(name, encode(pair.target, text, chat=wish.chat)) for name, text in prompts])
    sampling.run(places, progress, report, keep)
    sampling.close()
    return [place.name for place in places]


def _check(wish: Wish, prompts: Sequence[tuple[str, str]]) -> None:
    if wish.params.is_greedy:
        raise UsageError("temperature is 0; draws need one above 0, and greedy text is compared in any case")
    if wish.draft in (None, "none"):
        raise UsageError("draft is none; an audit of a pair needs something that drafts")
    if "auto" in _references(wish.draft):
        raise UsageError("draft is auto, and a certificate says what was audited: name the draft model, or ngram")
    if not prompts:
        raise UsageError("there are no prompts; give at least one")
    budget = wish.budget
    for name, value, least in (
        ("draws", budget.draws, budget.num_prefixes),
        ("num_tokens", budget.num_tokens, 1),
        ("num_prefixes", budget.num_prefixes, 1),
        ("full_every", budget.full_every, 1),
        ("text_tokens", wish.text_tokens, 1),
        ("num_speculative_tokens", min(wish.lengths, default=0), 1),
        ("batches", min(wish.batches, default=0), 1),
    ):
        if value < least:
            raise UsageError(f"{name} is {value}; it must be at least {least}")


def _settings(wish: Wish, prompts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    params = {name: value for name, value in asdict(wish.params).items() if value not in (None, (), {}, [])}
    return {
        "params": {name: value for name, value in params.items() if isinstance(value, int | float | str)},
        "rule": wish.rule,
        "draft_options": None if wish.draft_options is None else asdict(wish.draft_options),
        "draft_tree": wish.draft_tree,
        "chat": wish.chat,
        "lengths": list(wish.lengths),
        "threads": list(wish.threads),
        "batches": list(wish.batches),
        "num_texts": min(wish.num_texts, len(prompts)),
        "text_tokens": wish.text_tokens,
        "prompts": fingerprint({str(number): list(prompt) for number, prompt in enumerate(prompts)}),
        **asdict(wish.budget),
    }


def _references(draft: DraftRef | Sequence[DraftRef]) -> list[Any]:
    """Return what a user named, one by one."""
    if isinstance(draft, list | tuple):
        return list(draft)
    return [name.strip() for name in draft.split(",")] if isinstance(draft, str) else [draft]


def _described(reference: DraftRef | Sequence[DraftRef], resolver: Resolver) -> Mapping[str, Any]:
    described = [_described_one(one, resolver) for one in _references(reference)]
    return described[0] if len(described) == 1 else {"several": described}


def _described_one(reference: Any, resolver: Resolver) -> Mapping[str, Any]:
    if isinstance(reference, Model):
        return {"name": reference.name}
    name = str(reference)
    if name in _NO_MODELS:
        return {"name": name}
    files = model_files(resolver(name))
    return files if "/" in name or name == files["name"] else {"reference": name, **files}


def load_wished(wish: Wish, threads: int | None, resolver: Resolver) -> tuple[Model, list[Part]]:
    """Return the target and its drafters."""
    return load_pair(
        wish.target,
        wish.draft,
        wish.draft_options,
        threads=threads,
        ctx_size=None,
        resolver=resolver,
        draft_tree=wish.draft_tree,
    )


def _compare_texts(wish: Wish, prompts: Sequence[str], progress: Progress, resolver: Resolver, report: Report) -> None:
    """Compare texts at every length, batch size and number of threads with plain decoding on the first of them."""
    seeded = [
        replace(wish.params, max_tokens=wish.text_tokens, seed=_SEED_OF_TEXTS + number, n=1)
        for number in range(len(prompts))
    ]
    greedy = [SamplingParams(max_tokens=wish.text_tokens)] * len(prompts)
    equalities = None
    for threads in wish.threads:
        target, parts = load_wished(wish, threads, resolver)
        if equalities is None:
            report("answering without a draft, to compare with")
            equalities = Equalities(target, prompts, {GREEDY: greedy, SEEDED: seeded}, chat=wish.chat)
        drafter = combine(
            parts, target, store=None, max_model_tokens=wish.lengths[0], clock=_no_clock, known=_costs(parts)
        )
        equalities.compare(target, drafter, wish.lengths, wish.batches, report)
    if equalities is not None:
        progress.equalities += equalities.evidence()


def remembering_drafter(wish: Wish, target: Model, parts: Sequence[Part], resolver: Resolver) -> Any:
    """Return the drafter that the engine would have, but that draft models remember what they said."""
    remembered = [_remembering(wish, target, part, reference, resolver) for part, reference in _with_names(wish, parts)]
    drafter = combine(
        remembered, target, store=None, max_model_tokens=wish.lengths[0], clock=_no_clock, known=_costs(parts)
    )
    if drafter is None:
        raise UsageError(f"draft is {wish.draft}; an audit of a pair needs something that drafts")
    return drafter


def _with_names(wish: Wish, parts: Sequence[Part]) -> list[tuple[Part, ModelRef | None]]:
    """Return each drafter with the reference of its model, if it has one."""
    models = iter([one for one in _references(wish.draft) if isinstance(one, Model) or str(one) not in _NO_MODELS])
    return [(part, None if part.backend is None else next(models)) for part in parts]


def _remembering(wish: Wish, target: Model, part: Part, reference: ModelRef | None, resolver: Resolver) -> Part:
    if part.backend is None or reference is None:
        return part
    _, draft = open_pair(target, reference, resolver)
    backend = RememberedBackend(Memory(part.backend))
    model = Model(part.drafter.name, backend, draft.tokenizer, None, draft.context_length)
    relation = compare_vocabularies(target.tokenizer, draft.tokenizer).relation
    # Not ours: a single one is then asked in every round, whatever it is worth.
    return Part(attach(model, target, relation, wish.draft_tree), backend, is_ours=False)


def encode(model: Model, text: str, *, chat: bool) -> tuple[int, ...]:
    """Return the tokens of a prompt."""
    if chat and model.chat_template is not None:
        return tuple(encode_chat(model.tokenizer, model.chat_template, [{"role": "user", "content": text}]))
    return tuple(model.tokenizer.encode(text))


def _costs(parts: Sequence[Part]) -> Costs:
    """Return what passes are assumed to cost: an audit's drafts must not depend on how busy the machine is."""
    return replace(COSTS, drafts={part.drafter.name: FREE.in_units_of(100) for part in parts})


def _no_clock() -> float:
    return 0.0
