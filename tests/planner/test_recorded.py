"""Rounds drawn in hindsight have the law of the rounds that were: proven by enumeration."""

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest

from outrider.backends.base import Rows
from outrider.backends.toy import HashLM, exact_probs
from outrider.planner.recorded import HindsightCoins, RecordedBackend, Recording
from outrider.verification import verify_block, verify_token
from outrider.verification.exact import dense_drafter, outcomes, sequence_law

RULES = {"token": (verify_token, False), "block": (verify_block, True)}


def law_of(seed, **weights):
    model = HashLM(3, seed, **weights)
    return lambda prefix: exact_probs(model, prefix)


PAIRS = {
    "alike": (law_of(1), law_of(1)),
    "unlike": (law_of(1), law_of(2)),
    "impossible tokens": (law_of(3, min_weight=0, max_weight=3), law_of(4, min_weight=0, max_weight=3)),
    "certain draft": (law_of(5), lambda _prefix: np.array([Fraction(0), Fraction(1), Fraction(0)])),
}


def rounds_forwards(target, drafter, rule):
    """Return the law of what a round does: how many draft tokens stand, and what is emitted."""

    def experiment(coins):
        draft = drafter((), coins)
        rows = np.array([target(draft.token_ids[:row]) for row in range(len(draft) + 1)])
        result = rule(draft, rows, coins)
        return (*draft.token_ids[: result.num_accepted], result.next_token_id), result.num_accepted

    return outcomes(experiment)


def rounds_in_hindsight(target, drafter, length, *, is_block, coins_of=HindsightCoins):
    """Return the same, from texts of the target and drafts drawn given those."""
    law = defaultdict(Fraction)
    for text, share in sequence_law(target, length + 1).items():
        laws = [target(text[:place]) for place in range(length)]

        def experiment(coins, text=text, laws=laws):
            draft = drafter((), coins_of(coins, text[:length], laws, is_block=is_block))
            same = [one == other for one, other in zip(draft.token_ids, text, strict=False)]
            count = [*same, False].index(False)
            return text[: count + 1], count

        for outcome, probability in outcomes(experiment).items():
            law[outcome] += share * probability
    return dict(law)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("goes_on", [lambda _prefix, _probs: True, lambda prefix, probs: probs.max() * 2 > len(prefix)])
def test_hindsight_has_the_law_of_the_rounds_that_were(rule, pair, goes_on):
    target, drafted = PAIRS[pair]
    verify, is_block = RULES[rule]
    drafter = dense_drafter(drafted, 2, goes_on)
    assert rounds_in_hindsight(target, drafter, 2, is_block=is_block) == rounds_forwards(target, drafter, verify)


class Upright(HindsightCoins):
    """Forgets what the block rule makes up for."""

    __slots__ = ()

    def __init__(self, coins, said, laws, *, is_block):
        super().__init__(coins, said, laws, is_block=False)


class Independent(HindsightCoins):
    """Draws from the draft's law, whatever the target said."""

    __slots__ = ()

    def draw(self, weights):
        return self._coins.draw(weights)


class Reversed(HindsightCoins):
    """Weighs the draft's law against the target's the wrong way round."""

    __slots__ = ()

    def draw(self, weights):
        said, law = self._said[self._place], self._laws[self._place]
        if not self._coins.accept(law[said], weights[said]):
            return 2 - said if said != 1 else 0
        self._place += 1
        return said


@pytest.mark.parametrize(("coins_of", "rule"), [(Upright, "block"), (Independent, "token"), (Reversed, "token")])
def test_proof_detects(coins_of, rule):
    target, drafted = PAIRS["unlike"]
    verify, is_block = RULES[rule]
    drafter = dense_drafter(drafted, 2)
    found = rounds_in_hindsight(target, drafter, 2, is_block=is_block, coins_of=coins_of)
    assert found != rounds_forwards(target, drafter, verify)


def test_a_recorded_target_is_certain_of_its_text_and_of_nothing_else():
    backend = RecordedBackend(Recording("1", None, (1, 2), (3, 0)), vocab_size=5, max_length=8)
    sequence_id = backend.open_sequence()
    logits = backend.forward([Rows(sequence_id, [1, 2, 3], num_logits=3)])
    assert logits.argmax(axis=1).tolist() == [2, 3, 0]
    assert (np.sort(logits, axis=1)[:, :-1] == 0).all()
    assert not backend.forward([Rows(sequence_id, [0])]).any()  # the text ends here
    backend.crop(sequence_id, 2)
    off, on = backend.forward([Rows(sequence_id, [4, 3], num_logits=2, parents=[-1, -1])])
    assert (off.any(), on.argmax()) == (False, 0)
