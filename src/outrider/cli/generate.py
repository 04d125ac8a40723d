"""``outrider generate``: answer prompts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from outrider.cli.flags import Flags, speaking_of_flags, with_flags
from outrider.cli.prompts import Prompt, read_prompts, read_text
from outrider.errors import NumericalError, UsageError

if TYPE_CHECKING:
    from outrider.engine.outputs import GenerationOutput


@with_flags
def generate(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="What to answer; - reads it from stdin.")
    ] = None,
    *,
    prompts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Answer many: JSON lines with prompt and, if wanted, id, family; - is stdin."
        ),
    ] = None,
    prediction: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Text that the answer will resemble, such as a file to be edited; - is stdin."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
    flags: Flags,
) -> None:
    """Answer a prompt, or each prompt of a file.

    Text goes to stdout as it comes, with the draft's tokens in another colour on a terminal; what was done and how
    fast goes to stderr, one line an answer.
    """
    if (prompt is None) == (prompts is None):
        raise UsageError("give either a PROMPT or --prompts FILE; PROMPT may be - to read it from stdin")
    if prediction is not None and prompts is not None:
        raise UsageError("--prediction is for one PROMPT, not for --prompts FILE")
    if prediction is not None and flags.draft == "none":
        raise UsageError("--prediction is given, but nothing drafts from it; add --draft ngram, or a model")
    if prediction == prompt == "-":
        raise UsageError("PROMPT and --prediction cannot both be read from stdin")
    many = read_prompts(prompts) if prompts is not None else [_one(prompt or "")]
    predicted = None if prediction is None else read_text(prediction)
    outputs = _answer(many, flags, predicted, show_text=not as_json, named=prompts is not None)
    if as_json:
        documents = [
            {"id": one.id, "family": one.family, **output.to_json()} for one, output in zip(many, outputs, strict=True)
        ]
        document = outputs[0].to_json() if prompts is None else {"results": documents}
        sys.stdout.write(json.dumps(document) + "\n")
    if any(output.error is not None for output in outputs):
        raise typer.Exit(2)


def _one(prompt: str) -> Prompt:
    return Prompt(read_text("-") if prompt == "-" else prompt, id="1")


def _answer(
    many: list[Prompt], flags: Flags, prediction: str | None, *, show_text: bool, named: bool
) -> list[GenerationOutput]:
    """Answer prompts in turn, and say on stderr how it went, by id if they have names."""
    from rich.console import Console

    from outrider.cli.terminal import AnswerPrinter, Notes, summary
    from outrider.engine.prompts import naming

    params = flags.params()
    notes = Notes()
    printer = AnswerPrinter(Console())
    llm = flags.load(notes)
    for one in many:  # all of them, before the first is answered
        with naming(f"prompt {one.id}" if named else None), speaking_of_flags():
            llm.encode(one.text, chat=not flags.no_chat)
    for name in flags.idle():
        notes.say(
            f"{name} changes nothing at temperature 0, which always takes the likeliest token; add --temperature 1"
        )
    outputs = []
    for number, one in enumerate(many, start=1):
        label = f"{number}/{len(many)} {one.id}: " if named else ""
        try:
            for chunk in llm.stream(one.text, params, chat=not flags.no_chat, prediction=prediction):
                if show_text:
                    printer.write(chunk.tokens)
                if chunk.output is not None:
                    outputs.append(chunk.output)
        except NumericalError as error:  # of the target: a draft's costs nothing but the draft
            problem = f"the target {flags.target} cannot go on: {error}; fetch or convert it again, or use another"
            if not named:
                raise NumericalError(problem) from error
            notes.say(f"{label}{problem}")
            continue
        finally:
            printer.end()
        notes.say(label + summary(outputs[-1]))
    return outputs
