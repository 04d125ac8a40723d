"""Who is asked, who is chosen, what follows what, and what becomes of members that fail."""

import numpy as np
import pytest

from outrider.drafters.base import DraftRequest
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.errors import UsageError
from outrider.types import Draft, Outcome, TreeDraft, TreeResult, VerificationResult

FILE = [*range(200, 300)]
SHORT = [*FILE[30:55], 0]
FLAT = PassCosts(((1, 1.0), (2, 1.0)))


class Scripted:
    """Proposes what a script says, and remembers what it is asked and told."""

    def __init__(self, script, name="model"):
        self.script, self.name = script, name
        self.asked, self.told, self.released = [], [], []

    def propose(self, requests):
        self.asked.append([request.request_id for request in requests])
        return [self.script(request) for request in requests]

    def observe(self, request_id, result):
        self.told.append(result)

    def release(self, request_id):
        self.released.append(request_id)


def says(*token_ids, **fields):
    return lambda request: Draft(token_ids[: request.max_tokens], **fields)


def ask(cascade, *contexts, max_tokens=20, **fields):
    requests = [
        DraftRequest(number, context, max_tokens, shaper=None, coins=None, max_tree_tokens=64, **fields)
        for number, context in enumerate(contexts)
    ]
    return cascade.propose(requests)


def make(*members, **options):
    return CascadeDrafter(members, vocab_size=1000, **options)


def model(script, cost=0.1, max_tokens=6):
    return Member(Scripted(script), PassCosts().in_units_of(1 / cost), max_tokens)


def test_a_long_match_beats_a_model_and_no_match_leaves_it_to_the_model():
    one = model(says(7, 8, 9))
    cascade = make(one, Member(NgramDrafter()))
    (looked_up,) = ask(cascade, [*FILE, 0, *FILE[:40]])
    assert looked_up.token_ids == tuple(FILE[40:60])
    assert one.drafter.asked == []
    (drafted,) = ask(make(one, Member(NgramDrafter())), [1, 2, 3])
    assert drafted.token_ids == (7, 8, 9)
    assert drafted.sources == ("model",) * 3
    assert cascade.name == "model + ngram"


def test_a_models_draft_is_followed_by_what_is_looked_up():
    script = says(*FILE[30:36], confidences=(0.95,) * 6)
    (draft,) = ask(make(model(script), Member(NgramDrafter(costs=FLAT)), costs=FLAT), SHORT)
    assert draft.token_ids == tuple(FILE[30:50])
    assert draft.sources == ("model",) * 6 + ("ngram",) * 14
    assert draft.probs is None
    hardly = says(*FILE[30:36], confidences=(0.1,) * 6)
    (draft,) = ask(make(model(hardly), Member(NgramDrafter())), SHORT)
    assert draft.token_ids == tuple(FILE[30:36])


def test_a_drawn_draft_keeps_its_laws_and_what_follows_has_none():
    laws = np.full((2, 1000), 0.001)
    (draft,) = ask(make(model(says(*FILE[30:32], probs=laws), max_tokens=2), Member(NgramDrafter()), costs=FLAT), SHORT)
    assert draft.token_ids == tuple(FILE[30 : 30 + len(draft)])
    assert draft.probs is laws
    assert len(draft) > 3


def test_a_model_costs_what_it_is_worth():
    context = [5, 6, 7]
    assert ask(make(model(says(1, 2, 3), cost=0.3)), context)[0].token_ids
    assert not ask(make(model(says(1, 2, 3), cost=0.9)), context)[0].token_ids


def test_a_model_that_is_always_wrong_is_asked_less_and_one_that_is_right_more():
    def rounds_asked(is_right):
        one, context = model(says(900, 900, 900), cost=0.25), [1, 2, 3]
        cascade = make(one)
        for number in range(40):
            (draft,) = ask(cascade, context)
            if len(draft):
                num_accepted = 3 if is_right else 0
                cascade.observe(0, VerificationResult(num_accepted, 5, Outcome.RECOVERED))
            context = [*context, *([900] * (3 if len(draft) and is_right else 0)), 300 + number]
        return len(one.drafter.asked)

    assert rounds_asked(is_right=True) == 40
    assert rounds_asked(is_right=False) < 25


@pytest.mark.parametrize(("num_remaining", "is_read"), [(200, True), (3, False)])
def test_a_long_context_is_read_if_the_rest_of_the_answer_repays_that(num_remaining, is_read):
    one = model(says(7, 8, 9, 7, 8, 9), cost=0.1)
    cascade = make(one)
    asked = [
        ask(cascade, [*FILE, *FILE[::-1], *range(done)], num_remaining=num_remaining - done) and len(one.drafter.asked)
        for done in range(3)
    ]
    assert asked[0] == 0  # it has not been missed for what reading costs
    assert bool(asked[-1]) == is_read
    short = model(says(7, 8, 9), cost=0.3)
    ask(make(short, Member(NgramDrafter())), [1, 2, 3], num_remaining=num_remaining)
    assert short.drafter.asked == [[0]]


@pytest.mark.parametrize(("num_remaining", "is_read"), [(12, True), (1, False)])
def test_reading_is_repaid_by_as_many_rounds_as_the_allowed_length_leaves(num_remaining, is_read):
    one = model(says(7), cost=0.025, max_tokens=1)  # up to two tokens a round, however many longer drafts would bring
    ask(make(one, costs=FLAT), [*FILE, *FILE[::-1]], num_remaining=num_remaining)
    assert bool(one.drafter.asked) == is_read


def test_several_requests_are_asked_for_at_once():
    one = model(says(7, 8, 9))
    cascade = make(one, Member(NgramDrafter()))
    drafts = ask(cascade, [1, 2, 3], [*FILE, 0, *FILE[:40]], [4, 5, 6])
    assert one.drafter.asked == [[0, 2]]
    assert [draft.token_ids[0] for draft in drafts] == [7, FILE[40], 7]


def test_members_learn_of_their_own_tokens_only():
    one = model(says(*FILE[30:36]))
    cascade = make(one, Member(NgramDrafter()))
    ask(cascade, SHORT)
    cascade.observe(0, VerificationResult(9, 5, Outcome.RECOVERED))
    assert one.drafter.told == [VerificationResult(6, FILE[36], Outcome.BONUS)]
    cascade.observe(0, VerificationResult(2, 5, Outcome.RECOVERED))
    assert one.drafter.told[-1] == VerificationResult(2, 5, Outcome.RECOVERED)
    cascade.observe("unknown", VerificationResult(2, 5, Outcome.RECOVERED))
    cascade.release(0)
    assert one.drafter.released == [0]


def test_a_tree_is_passed_on_as_it_is():
    tree = TreeDraft((7, 8, 9), (-1, -1, 0), (None,) * 4)
    one = model(lambda request: tree)
    cascade = make(one, Member(NgramDrafter()))
    (draft,) = ask(cascade, [7, 9, 1, 7])
    assert (draft.token_ids, draft.parents, draft.sources) == (tree.token_ids, tree.parents, ("model",) * 3)
    cascade.observe(0, TreeResult((1,), 4, Outcome.BONUS))
    assert one.drafter.told == [TreeResult((1,), 4, Outcome.BONUS)]


def fails(_):
    raise RuntimeError("lost my weights")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (fails, "RuntimeError: lost my weights"),
        (lambda request: Draft((1000,)), "ids from 0 to 999"),
        (lambda request: Draft((1,) * 7), "at most 6 tokens"),
        (lambda request: "garbage", "a str, which is no draft"),
        (lambda request: Draft((1, 2), sources=("a",)), "label all or none"),
        (lambda request: Draft((1, 2), num_passes=-1), "-1 passes"),
    ],
)
def test_a_member_that_fails_is_dropped_and_the_others_go_on(script, words):
    one = model(script)
    cascade = make(one, Member(NgramDrafter()))
    (draft,) = ask(cascade, [1, 2, 3, 4, 5, 3])
    assert draft.token_ids[:1] == (4,)
    assert "model failed and was dropped" in draft.problem
    assert words in draft.problem
    (draft,) = ask(cascade, [1, 2, 3, 4, 5, 3, 4])
    assert draft.problem is None
    assert len(one.drafter.asked) == 1


def test_a_member_that_cannot_bear_an_outcome_is_dropped_and_the_others_go_on():
    one = model(says(7, 8))
    one.drafter.observe = lambda request_id, result: fails(result)
    cascade = make(one, Member(NgramDrafter()))
    ask(cascade, [1, 2, 3])
    cascade.observe(0, VerificationResult(0, 1, Outcome.RECOVERED))
    (draft,) = ask(cascade, [1, 2, 3, 1])
    assert draft.token_ids[:1] == (2,)
    assert draft.problem == "model failed and was dropped: RuntimeError: lost my weights"
    assert len(one.drafter.asked) == 1


def test_all_members_forget_a_request_whichever_of_them_fails():
    first, last = model(says(7)), model(says(8))
    first.drafter.release = fails
    cascade = make(first, last)
    with pytest.raises(RuntimeError, match="lost my weights"):
        cascade.release(3)
    assert last.drafter.released == [3]


def test_a_member_that_fails_for_one_request_serves_the_others():
    def picky(request):
        return fails(request) if request.request_id == 1 else Draft((7,))

    one = model(picky)
    drafts = ask(make(one), [1], [2], [3])
    assert [draft.token_ids for draft in drafts] == [(7,), (), (7,)]
    assert [draft.problem is None for draft in drafts] == [True, False, True]


def test_what_costs_nothing_may_not_draw():
    lookup = Member(Scripted(says(7, probs=np.full((1, 1000), 0.001))))
    (draft,) = ask(make(lookup), [1, 2])
    assert len(draft) == 0
    assert "may not draw" in draft.problem


def test_a_model_with_nothing_to_propose_loses_its_turns():
    one = model(says())
    cascade, context = make(one, Member(NgramDrafter())), [1, 2, 3, 4, 1, 2, 3]
    for number in range(30):
        assert ask(cascade, context)[0].problem is None
        context = [*context, 300 + number]
    assert len(one.drafter.asked) < 25


@pytest.mark.parametrize(
    "members",
    [[], [Member(NgramDrafter(), max_tokens=0)]],
)
def test_members_that_make_no_sense_are_refused(members):
    with pytest.raises(UsageError):
        CascadeDrafter(members, vocab_size=9)
