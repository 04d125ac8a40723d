"""Draws from a target with its draft, on this machine, held against the target's exact law.

Draws come from the engine as it is: its drafter, its rule, its coins, its commit. The target's rows of logits are
looked up where they have been computed before (see :mod:`outrider.audit.memory`), but for the first draws at each
place, which run the model and are compared row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from outrider.audit.cells import DirectedOrder, PrefixLaws
from outrider.audit.certificate import Claim, Control
from outrider.audit.control import moved_by_fault, wrong_variant
from outrider.audit.draws import Draw, Drawing, Prefix, WatchedDrafter, params_of_draws
from outrider.audit.evidence import Equality, Evidence
from outrider.audit.memory import CheckedBackend, Memory, RememberedBackend
from outrider.audit.prefixes import ANSWER_TOKENS, choose_prefixes, shaper_at
from outrider.audit.state import Progress
from outrider.audit.tally import Counter, Tally, courses_of, evidence_of
from outrider.engine.loading import Model
from outrider.engine.sequence import Rule
from outrider.engine.step import Stepper
from outrider.sampling import SamplingParams, Vocabulary, compile_params
from outrider.types import Probs, Weights

_TOLD = 3000  # draws between two lines of progress
BLOCK = 1000  # draws between two looks of the sequential test
_DIRECT = 32  # draws at each place that run the model
_NUM_TESTS = 28  # and two for each depth of a draft: more than there are, for the level at which a run stops early
_PROBE = 1 << 32  # the number of a draw that is not counted; answers that places are chosen from have lower ones
ROWS = "rows of logits, in the engine's passes and in plain ones"
CONTROL = "draws what replaces a refused token from the whole law of the target"
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much is drawn.

    Attributes:
        draws: In all.
        num_tokens: Of a draw, 1 to 4 or more.
        num_prefixes: Places to draw from.
        full_every: Every so manieth draw has room for whole drafts; see :mod:`outrider.audit.draws`.
        seed: Of everything.
    """

    draws: int = 54_000
    num_tokens: int = 4
    num_prefixes: int = 6
    full_every: int = 16
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and what drafts for it, ready to draw.

    Attributes:
        target: The target model.
        drafter: Whose draft model, if it has one, may remember what it said: its backend is nobody else's concern.
        num_speculative_tokens: See :class:`~outrider.engine.llm.LLM`.
        draft_tree: See there.
        rule: See there.
    """

    target: Model
    drafter: WatchedDrafter
    num_speculative_tokens: int
    draft_tree: int
    rule: Rule

    def stepper(self, backend: CheckedBackend | RememberedBackend | None = None) -> Stepper:
        """Return the engine's rounds over a backend of the target's; without one, plain rounds over its own."""
        speculative = self.num_speculative_tokens if backend is not None else 0
        return Stepper(
            target=backend or self.target.backend,
            vocab_size=self.target.vocab_size,
            eos_ids=self.target.tokenizer.eos_ids,
            detokenizer=self.target.tokenizer,
            drafter=self.drafter if speculative else None,
            num_speculative_tokens=speculative,
            max_tree_tokens=max(speculative, self.draft_tree),
            rule=self.rule,
        )


class SamplingAudit:
    """Draws at many places, against the target's exact law.

    Args:
        pair: What is audited.
        params: How tokens are chosen.
        budget: How much is drawn.
        claim: Whose level decides when to stop early.
        wrong_share: In which share of its chances the negative control is wrong.
    """

    def __init__(
        self, pair: Pair, params: SamplingParams, budget: Budget, claim: Claim, *, wrong_share: float = 1.0
    ) -> None:
        vocabulary = Vocabulary(pair.target.tokenizer, pair.target.vocab_size)
        self._pair, self._params, self._vocabulary = pair, params, vocabulary
        self._budget, self._claim = budget, claim
        self._compiled = params_of_draws(params, budget.num_tokens, vocabulary)
        answers = replace(params, max_tokens=ANSWER_TOKENS, seed=None, stop=(), n=1)
        self._answers = compile_params(answers, vocabulary)
        self._memory = Memory(pair.target.backend)
        self._checked = CheckedBackend(pair.target.backend, self._memory)
        remembered = pair.stepper(RememberedBackend(self._memory))
        self._direct = self._drawing(pair.stepper(self._checked))
        self._right = self._drawing(remembered)
        self._wrong = self._drawing(wrong_variant(remembered, wrong_share))

    def _drawing(self, stepper: Stepper) -> Drawing:
        budget = self._budget
        return Drawing(
            stepper,
            self._pair.drafter,
            self._params,
            self._vocabulary,
            num_tokens=budget.num_tokens,
            full_every=budget.full_every,
            seed=budget.seed,
        )

    def prefixes(self, prompts: Sequence[tuple[str, tuple[int, ...]]]) -> list[Prefix]:
        """Return the places to draw from, by the answers of the target itself to some prompts."""
        return choose_prefixes(
            prompts,
            self._budget.num_prefixes,
            plain=self._pair.stepper(),
            memory=self._memory,
            compiled=self._answers,
            seed=self._budget.seed,
            telling=self.telling,
        )

    def run(self, prefixes: Sequence[Prefix], progress: Progress, report: Report, keep: Callable[[], None]) -> None:
        """Draw at every place that is not done, until the budget ends or the engine has been found out.

        Args:
            prefixes: From :meth:`prefixes`.
            progress: What is done; added to.
            report: Is told how it goes.
            keep: Is called when ``progress`` has grown.
        """
        per_prefix = max(1, self._budget.draws // len(prefixes))
        for number in range(len(progress.tallies), len(prefixes)):
            if self._is_convinced(progress.tallies):
                report("convinced that what is emitted is wrong; the rest of the budget is not needed")
                return
            prefix = prefixes[number]
            laws = self._laws(prefix)
            order = DirectedOrder(laws.probs(()), self._probe(prefix))
            before = self._checked.num_rows, self._checked.num_different
            numbers = _numbers(number, per_prefix)
            where = f"{number + 1} of {len(prefixes)} places ({prefix.name})"
            draws = self._draws(prefix, numbers, where, report)
            progress.tallies.append(self._count(draws, laws, order, number, per_prefix, progress.tallies))
            progress.num_rows += self._checked.num_rows - before[0]
            progress.num_different += self._checked.num_different - before[1]
            if not self._is_convinced(progress.controls):
                wrong = self._wrong.draw(prefix, numbers)
                rng_number = number + len(prefixes)
                progress.controls.append(self._count(wrong, laws, order, rng_number, per_prefix, progress.controls))
            keep()
            is_found = "found out" if self._is_convinced(progress.controls) else "not yet found out"
            report(
                f"{where}: {progress.tallies[-1].num:,} draws, {self._memory.num_computed:,} rows computed; "
                f"the wrong variant is {is_found}"
            )

    def close(self) -> None:
        """Free what the target's backend holds for it."""
        self._memory.close()

    def _draws(self, prefix: Prefix, numbers: range, where: str, report: Report) -> Iterator[Draw]:
        """Yield draws, and report every few thousand how many there have been."""
        direct, rest = self._direct.draw(prefix, numbers[:_DIRECT]), self._right.draw(prefix, numbers[_DIRECT:])
        for done, draw in enumerate(chain(direct, rest), start=1):
            yield draw
            if done % _TOLD == 0 and done < len(numbers):
                report(f"{where}: {done:,} of {len(numbers):,} draws")

    def _count(  # noqa: PLR0913 - what a tally is made of
        self,
        draws: Iterator[Draw],
        laws: PrefixLaws,
        order: DirectedOrder,
        number: int,
        num: int,
        before: Sequence[Tally],
    ) -> Tally:
        rng = np.random.default_rng([self._budget.seed, number])
        counter = Counter(laws, self._budget.num_tokens, num, order, rng)
        # Each as soon as it is made: its draft holds laws of a megabyte, and rows that it asked for may be forgotten.
        for draw in draws:
            counter.add(draw)
            if counter.tally.num % BLOCK and counter.tally.num < num:
                continue
            counter.tally.checkpoint()
            if self._is_convinced([*before, counter.tally]):
                break
        return counter.tally

    def telling(self, prefix: Prefix) -> float:
        """Return the total variation by which the commonest fault would move the law of a place's first token."""
        return moved_by_fault(self._laws(prefix).probs(()), self._probe(prefix))

    def _laws(self, prefix: Prefix) -> PrefixLaws:
        shaper = shaper_at(prefix.token_ids, len(prefix.token_ids) - 1, self._compiled)
        return PrefixLaws(self._memory, prefix.token_ids, shaper, self._pair.target.vocab_size)

    def _probe(self, prefix: Prefix) -> Probs | int | None:
        """Return what is drafted at a place, in a draw that is not counted."""
        (draw,) = self._right.draw(prefix, [_PROBE])
        return _drafted(draw)

    def _is_convinced(self, tallies: Sequence[Tally]) -> bool:
        level = self._claim.level / (_NUM_TESTS + 2 * self._pair.num_speculative_tokens)
        return bool(tallies) and any(course.finding().p_value <= level for course in courses_of(tallies))


def _numbers(place: int, num: int) -> range:
    """Return the numbers of a place's draws, which no other draw has.

    Draws of one number share their coins wherever they are made at the same length, and tests that add up places would
    take an accident for a fault.
    """
    start = _PROBE + 1 + place * num
    return range(start, start + num)


def _drafted(draw: Draw) -> Probs | int | None:
    draft = draw.rounds[0].draft
    if not len(draft):
        return None
    laws: Sequence[Weights | None] = () if draft.probs is None else list(islice(draft.probs, 1))
    law = laws[0] if laws else None
    return draft.token_ids[0] if law is None else np.asarray(law, dtype=np.float64)


def sampling_evidence(progress: Progress, num_tokens: int) -> tuple[tuple[Evidence, ...], tuple[Control, ...]]:
    """Return what an audit's counts come to, and its control's."""
    rows = Equality(ROWS, progress.num_rows, progress.num_different)
    evidence = (*progress.equalities, rows, *evidence_of(progress.tallies, num_tokens))
    control = Control(CONTROL, evidence_of(progress.controls, num_tokens) if progress.controls else ())
    return evidence, (control,)
