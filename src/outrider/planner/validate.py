"""Runs choices on the target, to hold predictions against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.engine.costs import Costs
from outrider.planner.choices import Choice
from outrider.planner.lineup import Lineup
from outrider.planner.measuring import Progress
from outrider.planner.meter import Prompted, Setting, Timed, run
from outrider.planner.recorded import Recording


def validate(  # noqa: PLR0913 - what is run, on what, with what
    lineup: Lineup,
    setting: Setting,
    recordings: Sequence[Recording],
    choices: Sequence[Choice],
    costs: Costs,
    progress: Progress,
) -> Mapping[Choice, tuple[float, Mapping[str, float]]]:
    """Let the target answer prompts again with each choice; return tokens per second, in all and by family.

    Choices take turns on each prompt, so that what slows the machine down for a while slows all alike.

    Args:
        lineup: The models.
        setting: How the recordings were made.
        recordings: The prompts.
        choices: To run.
        costs: Of passes, in seconds.
        progress: See :data:`~outrider.planner.measuring.Progress`.
    """
    taken: dict[Choice, list[tuple[str | None, Timed]]] = {choice: [] for choice in choices}
    for number, recording in enumerate(recordings):
        prompt = Prompted(recording.id, recording.family, recording.prompt_ids)
        for place, choice in enumerate(choices):
            progress(f"running {choice.name}", (number + place / len(choices)) / len(recordings))
            drafting = lineup.drafting(choice, costs)
            taken[choice].append((recording.family, run(setting, prompt, recording.seed, drafting)))
    progress("run", 1.0)
    return {choice: (_rate([one for _, one in own]), _by_family(own)) for choice, own in taken.items()}


def _by_family(taken: Sequence[tuple[str | None, Timed]]) -> dict[str, float]:
    families = sorted({family for family, _ in taken if family is not None})
    return {name: _rate([one for family, one in taken if family == name]) for name in families}


def _rate(taken: Sequence[Timed]) -> float:
    seconds = sum(one.seconds for one in taken)
    return sum(one.num_tokens for one in taken) / seconds if seconds > 0 else 0.0
