"""A row that no law can be had for is an error exactly as often as plain decoding gets there, whatever was drafted.

Rows are worked out when a rule asks for them; some contexts raise an error in place of a law. The law of what becomes
of a generation, its tokens or the error, is enumerated and compared with plain decoding's.
"""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from outrider.audit.toy_laws import PAIRS
from outrider.audit.wrong_variants import _argmax as argmax
from outrider.errors import NumericalError, UsageError
from outrider.types import Draft, Outcome, TreeDraft, VerificationResult
from outrider.verification import verify_block, verify_greedy, verify_point_mass, verify_token, verify_tree
from outrider.verification.exact import dense_drafter, outcomes, point_mass_drafter

NUM_TOKENS = 3
NAMES = ["unlike", "impossible tokens", "four tokens", "disjoint supports", "draft of two tokens only"]
# Contexts that have no law, by what of a context it is that matters.
BROKEN = {
    "after token 0 twice": lambda prefix: prefix[-2:] == (0, 0),
    "after token 1": lambda prefix: prefix[-1:] == (1,),
    "after a first token": lambda prefix: len(prefix) == 1 and prefix != (0,),
    "after any two tokens": lambda prefix: len(prefix) == 2,
    "at once": lambda prefix: prefix == (),
}


class Rows:
    """The target's law at each draft token and after the last, worked out when asked for."""

    dtype = np.dtype(object)

    def __init__(self, law, prefix, token_ids, is_broken):
        self.shape = (len(token_ids) + 1, len(law(())))
        self.prefixes = [(*prefix, *token_ids[:count]) for count in range(len(token_ids) + 1)]
        self.law, self.is_broken = law, is_broken

    def __len__(self):
        return len(self.prefixes)

    def __getitem__(self, row):
        if self.is_broken(self.prefixes[row]):
            raise NumericalError(f"no law after {self.prefixes[row]}")
        return self.law(self.prefixes[row])


def fate(rule, target, drafter, is_broken):
    """Return the law of the tokens generated, with None for the error that ended it."""

    def experiment(coins):
        prefix = ()
        try:
            while len(prefix) < NUM_TOKENS:
                draft = drafter(prefix, coins)
                rows = Rows(target, prefix, draft.token_ids, is_broken)
                result = rule(draft, rows, coins)
                prefix = (*prefix, *draft.token_ids[: result.num_accepted], result.next_token_id)
        except NumericalError:
            return None
        return prefix[:NUM_TOKENS]

    return outcomes(experiment)


def room(propose):
    """Drafts leave room for the token after them, as the engine's do."""
    drafters = [propose(count) for count in range(3)]
    return lambda prefix, coins: drafters[min(2, NUM_TOKENS - len(prefix) - 1)](prefix, coins)


def dense(draft):
    return room(partial(dense_drafter, draft))


def likeliest(draft):
    return room(lambda count: point_mass_drafter(lambda prefix: argmax(draft, prefix, count)))


def as_tree(rule):
    """The same draft as a tree without branches."""

    def by_tree(draft, target_probs, coins):
        rows = [None] * (len(draft) + 1) if draft.probs is None else [*draft.probs, None]
        tree = TreeDraft(draft.token_ids, tuple(range(-1, len(draft) - 1)), tuple(rows))
        result = rule(tree, target_probs, coins)
        return VerificationResult(len(result.path), result.next_token_id, result.outcome)

    return by_tree


CASES = {
    "token": (verify_token, dense),
    "block": (verify_block, dense),
    "tree, drawn": (as_tree(verify_tree), dense),
    "point mass": (verify_point_mass, likeliest),
    "tree, chosen": (as_tree(verify_tree), likeliest),
}


def wanted(target, is_broken):
    return fate(verify_point_mass, target, lambda prefix, coins: Draft(()), is_broken)


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_an_answer_fails_exactly_as_often_as_in_plain_decoding(case, name, broken):
    (target, draft), (rule, make_drafter) = PAIRS[name], CASES[case]
    law = fate(rule, target, make_drafter(draft), BROKEN[broken])
    assert sum(law.values()) == 1
    assert law == wanted(target, BROKEN[broken])


def test_errors_are_possible_and_not_certain_or_the_proof_would_prove_nothing():
    chances = [wanted(PAIRS[name][0], broken).get(None, 0) for name in NAMES for broken in BROKEN.values()]
    assert sum(0 < chance < 1 for chance in chances) > 12


@pytest.mark.parametrize("row", range(3))
def test_greedy_looks_at_no_row_behind_a_rejection(row):
    class Ids(list):
        def __getitem__(self, at):
            if at == row:
                raise NumericalError(f"row {at}")
            return super().__getitem__(at)

    for length in range(3):  # so many draft tokens are right
        draft = Draft((4,) * length + (5,) * (2 - length))
        if row > length:
            assert verify_greedy(draft, Ids([4, 4, 4])) == VerificationResult(length, 4, Outcome.RECOVERED)
        else:
            with pytest.raises(NumericalError, match=f"row {row}"):
                verify_greedy(draft, Ids([4, 4, 4]))


@pytest.mark.parametrize("error", [NumericalError, UsageError])
def test_the_block_rule_raises_a_rows_own_error_once_it_gets_there(error):
    class Broken(Rows):
        def __getitem__(self, row):
            if row == 1:
                raise error("that very one")
            return super().__getitem__(row)

    target, draft = PAIRS["context-free"]
    proposed = Draft((0, 0), np.array([draft(()), draft((0,))]))
    rows = Broken(target, (), (0, 0), lambda prefix: False)
    with pytest.raises(error, match="that very one"):
        outcomes(lambda coins: verify_block(proposed, rows, coins))


# --- wrong ways


def looks_at_every_row_first(rule):
    def eager(draft, target_probs, coins):
        return rule(draft, target_rows(target_probs, len(draft)), coins)

    return eager


def block_cut_where_a_law_is_missing(draft, target_probs, coins):
    """Ends the draft before the first row without a law: the last token goes, whose law was there."""

    def has_law(row):
        try:
            return target_probs[row] is not None
        except NumericalError:
            return False

    length = next(length for length in range(len(draft), -1, -1) if length == 0 or all(map(has_law, range(length + 1))))
    return verify_block(Draft(draft.token_ids[:length], draft.probs[:length]), target_rows(target_probs, length), coins)


def target_rows(target_probs, length):
    return np.array([target_probs[row] for row in range(length + 1)])


MUTANTS = {
    "token, all rows first": (looks_at_every_row_first(verify_token), dense),
    "block, all rows first": (looks_at_every_row_first(verify_block), dense),
    "point mass, all rows first": (looks_at_every_row_first(verify_point_mass), likeliest),
    "tree, all rows first": (looks_at_every_row_first(as_tree(verify_tree)), dense),
    "block, cut where rows are missing": (block_cut_where_a_law_is_missing, dense),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_proof_detects(name):
    rule, make_drafter = MUTANTS[name]
    found = Counter()
    for pair in NAMES:
        target, draft = PAIRS[pair]
        for broken in BROKEN.values():
            found[fate(rule, target, make_drafter(draft), broken) != wanted(target, broken)] += 1
    assert found[True] > 3
