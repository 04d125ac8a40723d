"""The flags that every command that generates has in common, declared once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from outrider.errors import UsageError
from outrider.models.fields import shown

if TYPE_CHECKING:
    from outrider.cli.terminal import Notes
    from outrider.engine.llm import LLM
    from outrider.sampling.params import SamplingParams


# Settings by which a flag of another name goes.
_NAMES = {"max_cached_tokens": "cache_tokens"}
# What a plan says.
_PLANNED = ("draft", "draft_options", "num_speculative_tokens", "draft_tree", "rule")


def whole(text: str) -> int:
    """Return the whole number that a flag's text is."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is not a whole number") from None


def number(text: str) -> float:
    """Return the number that a flag's text is."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{shown(text)} is not a number") from None


@dataclass(frozen=True, slots=True)
class EngineFlags:
    """What is loaded and how it runs: one field a flag; the help text is the documentation."""

    target: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            help="The model that answers: a path, a catalog name, or hf:owner/repo[/file]. [required without --plan]",
        ),
    ] = None
    draft: Annotated[
        str,
        typer.Option(
            metavar="REF|ngram|auto|none",
            help="What proposes tokens: a smaller model, best of the same family, 'ngram' (looks them up in the prompt "
            "and the answer so far; joins a single model), 'auto' (ngram and the likeliest smaller model at hand), "
            "'none', or several of them with commas between.",
        ),
    ] = "none"
    draft_options: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="How a draft model is held, which never changes the answer's law: weights=int4, int8 or file, vocab=N "
            "or all (how many tokens it can say), text=FILE (like the answers, to choose them by), window=W or all "
            "(how many of the last tokens it sees); may be repeated. [default: weights=int4 vocab=65536 window=all]",
        ),
    ] = None
    num_speculative_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole,
            help="The most draft tokens a round; 0 turns speculation off. [default: 12 of a model, 64 of ngram]",
        ),
    ] = None
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draft as 'outrider plan --save' found best; refused on another machine or for other models.",
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Keep answers in this private directory; 'ngram' drafts from those kept there, too."
        ),
    ] = None
    draft_tree: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole,
            help="Let a draft model propose up to N tokens a round as a tree: several candidates a place. 0: one.",
        ),
    ] = 0
    rule: Annotated[
        str,
        typer.Option(
            metavar="auto|token|block|coupled",
            help="How drafts are verified when temperature is above 0. Each keeps the target's law; 'coupled', the "
            "automatic choice with --seed, also makes the text independent of the draft.",
        ),
    ] = "auto"
    threads: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole, help="Threads that compute. [default: one a physical core]"),
    ] = None
    ctx_size: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole,
            help="The most tokens of prompt and answer together. [default: what the model allows]",
        ),
    ] = None

    def load(self, console: Notes) -> LLM:
        """Load the models, and show on the console that this is going on."""
        from outrider.cli.draft_options import parse_draft_options
        from outrider.cli.progress import loading
        from outrider.engine.llm import LLM

        if self.plan is not None:
            return self._load_planned(self.plan, console)
        if not self.target:
            problem = "no --target given" if self.target is None else "--target is empty"
            raise UsageError(f"{problem}; name a model: a path, hf:owner/repo, or one of outrider models list")
        if not self.draft:
            raise UsageError("--draft is empty; name a smaller model, ngram, auto or none")
        if self.store == "":
            raise UsageError("--store is empty; name a directory, or leave it out")
        with speaking_of_flags(), loading(console) as resolver:
            return LLM(
                self.target,
                self.draft,
                draft_options=parse_draft_options(self.draft_options or ()),
                num_speculative_tokens=self.num_speculative_tokens,
                draft_tree=self.draft_tree,
                store=self.store,
                rule=self.rule,
                threads=self.threads,
                ctx_size=self.ctx_size,
                resolver=resolver,
            )

    def _load_planned(self, plan: str, console: Notes) -> LLM:
        from outrider.cli.progress import loading
        from outrider.engine.llm import LLM
        from outrider.planner.apply import apply_plan

        for one in fields(EngineFlags):
            if one.name in _PLANNED and getattr(self, one.name) != one.default:
                flag = f"--{one.name.replace('_', '-')}"
                raise UsageError(f"{flag} is given, and --plan, which says how to draft; leave one of them out")
        with speaking_of_flags(), loading(console) as resolver:
            planned = apply_plan(
                Path(plan), resolver=resolver, environment=os.environ, target=self.target, threads=self.threads
            )
            if not planned.draft:
                console.say(f"the plan {plan} says not to speculate")
            return LLM(
                planned.target,
                planned.draft,
                draft_options=planned.draft_options,
                num_speculative_tokens=planned.num_speculative_tokens,
                draft_tree=planned.draft_tree,
                store=self.store,
                rule=planned.rule,
                threads=planned.threads,
                ctx_size=self.ctx_size,
                costs=planned.costs,
                resolver=resolver,
            )


@dataclass(frozen=True, slots=True)
class Flags(EngineFlags):
    """The same, and how tokens are chosen."""

    max_tokens: Annotated[int, typer.Option(metavar="N", parser=whole, help="The most tokens to generate.")] = 256
    temperature: Annotated[
        float, typer.Option(metavar="T", parser=number, help="0 always takes the most likely token.")
    ] = 0.0
    top_p: Annotated[
        float | None, typer.Option(metavar="P", parser=number, help="Keep the likeliest tokens up to this mass.")
    ] = None
    top_k: Annotated[int | None, typer.Option(metavar="K", parser=whole, help="Keep the K likeliest tokens.")] = None
    min_p: Annotated[
        float | None,
        typer.Option(metavar="P", parser=number, help="Keep tokens at least P times as likely as the likeliest."),
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", parser=whole, help="Makes sampled text reproducible.")] = None
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End the answer before this text; may be repeated.")
    ] = None
    no_chat: Annotated[
        bool, typer.Option("--no-chat", help="Give the prompt to the model as it is, without its chat template.")
    ] = False

    def params(self) -> SamplingParams:
        """Return how tokens are chosen."""
        from outrider.models.tokenizer import check_unicode
        from outrider.sampling.params import SamplingParams

        for text in self.stop or ():
            if not text:
                raise UsageError("--stop is empty; give the text to stop before, or leave it out")
            check_unicode(text, "--stop")
        with speaking_of_flags():
            return SamplingParams(
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                min_p=self.min_p,
                seed=self.seed,
                max_tokens=self.max_tokens,
                stop=tuple(self.stop or ()),
            )

    def idle(self) -> list[str]:
        """Return the flags that were given and change nothing, since there is nothing to draw at temperature 0."""
        names = ("top_p", "top_k", "min_p", "seed") if self.temperature == 0 else ()
        return [f"--{name.replace('_', '-')}" for name in names if getattr(self, name) is not None]


@contextmanager
def speaking_of_flags(kind: type = Flags) -> Iterator[None]:
    """Let an error that begins with the name of a setting begin with its flag, and advise on that of the context.

    Args:
        kind: Whose fields are the flags.
    """
    try:
        yield
    except UsageError as error:
        name, _, rest = str(error).partition(" is ")
        is_setting = name in _NAMES or name in {field.name for field in fields(kind)}
        text = f"--{_NAMES.get(name, name).replace('_', '-')} is {rest}" if is_setting else str(error)
        raise type(error)(text.replace(" ctx_size", " --ctx-size")) from error


def with_flags(command: Callable[..., Any], *, without: Collection[str] = ()) -> Callable[..., Any]:
    """Give a command that takes ``flags``, of any kind, one option for each of them.

    Args:
        command: Its own parameters come first.
        without: Fields that it has no option for, or one of its own.
    """
    kind = signature(command, eval_str=True).parameters["flags"].annotation
    hints = get_type_hints(kind, include_extras=True)
    own = [parameter for name, parameter in signature(command, eval_str=True).parameters.items() if name != "flags"]
    shared = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
        if field.name not in without
    ]

    @wraps(command)
    def run(**values: Any) -> Any:
        flags = kind(**{one.name: values.pop(one.name) for one in shared})
        return command(**values, flags=flags)

    parameters = [*own, *shared]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
