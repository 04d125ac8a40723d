"""Where there is no chance there is no test: the tokens must be those of plain decoding, every one.

Greedy text is; and so is sampled text with a seed, whose rule shares its noise between draft and target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from outrider.audit.evidence import Equality
from outrider.drafters.base import Drafter
from outrider.drafters.gain import PassCosts
from outrider.engine.costs import Costs
from outrider.engine.llm import LLM
from outrider.engine.loading import Model
from outrider.sampling import SamplingParams

# What passes cost decides which drafts are worth their while. Here rows are for nothing, so that whatever can be
# drafted is, and an audit does not depend on how busy the machine is.
FREE = PassCosts(((1, 1.0), (1 << 16, 1.0)))
COSTS = Costs(FREE)
_EXAMPLES = 5
Texts = list[tuple[int, ...]]
Report = Callable[[str], None]


def texts_of(llm: LLM, prompts: Sequence[str], params: Sequence[SamplingParams], *, chat: bool) -> Texts:
    """Return the token ids of the answers to some prompts."""
    return [output.token_ids for output in llm.generate(prompts, params, chat=chat)]


class Equalities:
    """Compares answers with those of plain decoding.

    Args:
        target: The target model.
        prompts: What is asked.
        params: By what they are compared: its name, and how tokens are chosen for each prompt.
        chat: See :class:`~outrider.engine.llm.LLM`.
    """

    def __init__(
        self,
        target: Model,
        prompts: Sequence[str],
        params: dict[str, Sequence[SamplingParams]],
        *,
        chat: bool,
    ) -> None:
        plain = LLM(target)
        self._prompts, self._params, self._chat = prompts, params, chat
        self._plain = {name: texts_of(plain, prompts, each, chat=chat) for name, each in params.items()}
        self._cases = dict.fromkeys(params, 0)
        self._wrong: dict[str, list[str]] = {name: [] for name in params}

    def compare(
        self, target: Model, drafter: Drafter | None, lengths: Sequence[int], batches: Sequence[int], report: Report
    ) -> None:
        """Answer with a drafter at every length and batch size, and compare.

        Args:
            target: The same model, which may run on another number of threads.
            drafter: Or None for plain decoding.
            lengths: Draft tokens a round.
            batches: Answers side by side.
            report: Is told of each setting.
        """
        threads = getattr(target.backend, "threads", None)
        for length in lengths if drafter is not None else (0,):
            for batch in batches:
                where = f"{_count(length, 'draft token')}, {batch} side by side" + (
                    f", {_count(threads, 'thread')}" if threads else ""
                )
                report(f"comparing texts: {where}")
                llm = LLM(target, drafter, num_speculative_tokens=length, max_sequences=batch, costs=COSTS)
                for name, each in self._params.items():
                    texts = texts_of(llm, self._prompts, each, chat=self._chat)
                    self._cases[name] += len(texts)
                    self._wrong[name] += _differences(self._plain[name], texts, where)

    def evidence(self) -> tuple[Equality, ...]:
        """Return what was found."""
        return tuple(
            Equality(name, self._cases[name], len(wrong), tuple(wrong[:_EXAMPLES]))
            for name, wrong in self._wrong.items()
        )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _differences(plain: Texts, texts: Texts, where: str) -> Iterator[str]:
    for number, (wanted, found) in enumerate(zip(plain, texts, strict=True), start=1):
        if wanted != found:
            at = next(
                (index for index, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]),
                min(len(wanted), len(found)),
            )
            yield (
                f"prompt {number}, token {at}: {found[at : at + 1]} and not {wanted[at : at + 1]} of plain decoding "
                f"({where})"
            )
