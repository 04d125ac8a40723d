"""The controller's regret is bounded whatever becomes of its drafts; it settles, recovers, and heeds the load."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.backends.metered import Pass
from outrider.drafters.base import DraftRequest
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.experience import SHARE, TRIAL, AnswerLengths, Credit, Record
from outrider.drafters.gain import PassCosts
from outrider.types import Draft, Outcome, VerificationResult

COSTS = PassCosts(((1, 1.0), (2, 1.05), (8, 1.2), (16, 2.0), (32, 3.2)))
MODEL = PassCosts(((1, 0.3), (8, 0.4), (256, 4.0)))
STEEP = PassCosts(((1, 1.0), (8, 1.1), (9, 2.0), (16, 4.0)))


class Endless:
    """Proposes as many tokens as it is asked for, each right with a stated chance."""

    def __init__(self, name="endless", chance=None):
        self.name, self.chance, self.num_asked = name, chance, []

    def propose(self, requests):
        self.num_asked += [request.max_tokens for request in requests]
        return [self._draft(request.max_tokens) for request in requests]

    def _draft(self, count):
        return Draft((7,) * count, confidences=() if self.chance is None else (self.chance,) * count)

    def observe(self, request_id, result):
        pass

    def release(self, request_id):
        pass


class Run:
    """One answer under a controller, what it costs told by the very costs that the controller has."""

    def __init__(self, cascade, *, costs=COSTS, prompt=3, total=256):
        self.cascade, self.costs, self.context, self.total = cascade, costs, [1] * prompt, total
        self.plain = self.cost = 0.0
        self.lengths = []

    def round(self, num_right):
        """Take a round in which so many draft tokens would be accepted; return the draft's length."""
        left = self.total - self.num_tokens
        request = DraftRequest(0, list(self.context), min(64, left - 1), None, None, num_remaining=left)
        (draft,) = self.cascade.propose([request])
        accepted = min(num_right, len(draft))
        before = len(self.context)
        self.plain += sum(self.costs.at(1, before + ahead) for ahead in range(accepted + 1))
        self.cost += self.costs.at(1 + len(draft), before)
        if len(draft):
            models = {one.drafter.name: one.costs for one in self.cascade.members if one.costs is not None}
            self.cost += sum(models[source].at(1) for source in draft.sources if source in models)
            self.cascade.observe(0, VerificationResult(accepted, 5, Outcome.RECOVERED))
        self.context += [1] * (accepted + 1)
        self.lengths.append(len(draft))
        return len(draft)

    @property
    def num_tokens(self):
        return len(self.context) - 3


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=150), st.sampled_from(["model", "lookup", "both"]), st.booleans())
def test_no_sequence_of_outcomes_loses_more_than_the_bound(outcomes, who, follows):
    members = [Member(Endless("model"), MODEL)] if who != "lookup" else []
    members += [Member(Endless("lookup", 0.9))] if who != "model" else []
    run = Run(CascadeDrafter(members, vocab_size=9, costs=COSTS))
    for number, outcome in enumerate(outcomes):
        # An adversary: right while nobody looks, wrong as soon as it pays to believe it.
        run.round(outcome if not follows else (12 if number % 8 < 3 and outcome else 0))
        if run.num_tokens > 200:
            break
    assert run.cost <= run.plain + len(members) * (TRIAL + SHARE * run.plain) + 0.2  # and what it had to read


@pytest.mark.parametrize("chance", [None, 0.0])
def test_a_useless_draft_is_left_alone_within_20_rounds_and_costs_less_than_3_percent(chance):
    for cost in (0.08, 0.3, 0.6):
        costs = PassCosts(((1, cost), (8, 1.3 * cost), (256, 12 * cost)))
        run = Run(CascadeDrafter([Member(Endless(), costs, 12, chance)], vocab_size=9, costs=COSTS))
        while run.num_tokens < 255:
            run.round(0)
        assert sum(map(bool, run.lengths[20:])) <= 256 * SHARE / cost + 1  # but for a look now and then
        assert run.cost < 1.03 * run.plain


def test_a_draft_that_becomes_good_is_found_again_and_one_that_was_good_may_not_ruin_it_all():
    cheap_to_read = PassCosts(((1, 0.3), (8, 0.4), (256, 1.0)))  # to look again it has to read what it has not
    run = Run(CascadeDrafter([Member(Endless(), cheap_to_read, 6)], vocab_size=9, costs=COSTS), total=4000)
    for _ in range(60):
        run.round(0)
    assert sum(map(bool, run.lengths[20:])) <= 1
    before = len(run.lengths)
    for _ in range(400):
        run.round(12)
    assert sum(run.lengths[before:][-50:]) > 200
    cost, plain = run.cost, run.plain
    for _ in range(60):
        run.round(0)
    assert run.cost - cost < run.plain - plain + 12.1 + SHARE * 60


@pytest.mark.parametrize("prompt", [3, 150])
def test_a_model_that_was_useless_in_other_answers_is_tried_again_for_little_and_comes_back(prompt):
    dear_to_read = PassCosts(((1, 0.3), (8, 0.4), (256, 8.0)))
    cascade = CascadeDrafter([Member(Endless(), dear_to_read, 6)], vocab_size=9, costs=COSTS)

    def answer(num_right):
        run = Run(cascade, prompt=prompt, total=256 + prompt)
        while len(run.context) < 200 + prompt:
            run.round(num_right)
        cascade.release(0)
        drafted = list(map(bool, run.lengths))
        reading = dear_to_read.reading(prompt + drafted.index(True)) if any(drafted) else 0.0
        return sum(drafted), run.cost + reading - run.plain, run.plain

    for _ in range(12):
        answer(0)
    useless = [answer(0) for _ in range(30)]
    assert sum(lost for _, lost, _ in useless) < 0.01 * sum(plain for _, _, plain in useless)
    assert any(tried for tried, _, _ in useless)
    assert min(drafted for drafted, _, _ in [answer(12) for _ in range(20)][12:]) >= 25


def test_a_model_that_holds_a_context_drafts_at_once_and_one_that_must_read_it_does_not():
    class Holding(Endless):
        num_tokens = 0

        def keep_contexts(self, max_tokens, grain=1):
            self.kept = (max_tokens, grain)

        def num_held(self, context_ids):
            if self.num_tokens is None:
                raise RuntimeError("lost count")
            return min(self.num_tokens, len(context_ids) - 1)

    def first_lengths(num_tokens):
        model = Holding("model")
        model.num_tokens = num_tokens
        cascade = CascadeDrafter([Member(model, MODEL, 8)], vocab_size=9, costs=COSTS)
        cascade.keep_contexts(100, 4)
        assert model.kept == (100, 4)
        if num_tokens is not None:
            assert cascade.num_held([1] * 1000) == num_tokens
            others = [Member(model, MODEL), Member(Endless("reads all"), MODEL)]
            assert CascadeDrafter(others, vocab_size=9, costs=COSTS).num_held([1] * 1000) == 0
        run = Run(cascade, prompt=1000, total=1300)
        return [run.round(2) for _ in range(5)]

    assert first_lengths(0) == [0] * 5
    assert min(first_lengths(998)) > 0
    assert first_lengths(None) == [0] * 5  # whatever it raises costs its drafts alone


def test_a_model_that_no_longer_holds_what_it_was_said_to_hold_is_dear_again():
    class Forgetful(Endless):
        num_told = 0

        def keep_contexts(self, max_tokens, grain=1):
            pass

        def num_held(self, context_ids):
            self.num_told += 1
            return 998 if self.num_told == 1 else 0

    model = Forgetful("model")
    run = Run(CascadeDrafter([Member(model, MODEL, 8)], vocab_size=9, costs=COSTS), prompt=1000, total=1300)
    assert [run.round(2) for _ in range(6)] == [0] * 6
    assert (model.num_asked, model.num_told) == ([], 2)


def test_a_model_reads_for_an_answer_that_is_long_enough_to_bring_twice_what_that_costs():
    def is_asked(num_tokens):
        member = Member(Endless(), MODEL, 8)
        run = Run(CascadeDrafter([member], vocab_size=9, costs=COSTS), prompt=100, total=97 + num_tokens)
        return any(run.round(0) for _ in range(num_tokens - 2))

    gain = 2 - 3.5 * 0.3 - 0.125  # a round's tokens without its passes and what they add to the target's, as a rule
    price = MODEL.reading(101) - 0.3
    missed = 1  # plain round until it has been missed for the price
    least = missed + ceil(3 * 2 * price / gain)  # three tokens a round
    assert [is_asked(num_tokens) for num_tokens in (least - 1, least)] == [False, True]


def test_a_machine_that_got_faster_while_nobody_drafted_does_not_make_drafts_look_dear():
    def drafted(speedup):
        passes = []
        members = [Member(Endless("model"), MODEL, passes=[])]
        cascade = CascadeDrafter(members, vocab_size=9, costs=COSTS, passes=passes)
        for number in range(100):
            cascade.propose([DraftRequest("other", [1] * (3 + number), 0, None, None)])
            passes.append(Pass("target", ((1, 0),), COSTS.at(1) / speedup, 1))
        cascade.release("other")
        run = Run(cascade)
        return [run.round(2) for _ in range(40)]

    assert drafted(2.0) == drafted(1.0)
    assert sum(drafted(2.0)) > 60


def ask(cascade, count, rounds=4):
    contexts = {number: [1, 2, 3] for number in range(count)}
    for _ in range(rounds):
        requests = [DraftRequest(n, list(context), 20, None, None) for n, context in contexts.items()]
        drafts = cascade.propose(requests)
        for number, draft in enumerate(drafts):
            if len(draft):
                cascade.observe(number, VerificationResult(len(draft), 5, Outcome.BONUS))
            contexts[number] += [1] * (len(draft) + 1)
    return [len(draft) for draft in drafts]


@pytest.mark.parametrize("members", [[Member(Endless("lookup", 0.8))], [Member(Endless("model"), MODEL, 12, 0.9)]])
def test_the_more_requests_share_a_pass_the_shorter_their_drafts(members):
    lengths = [ask(CascadeDrafter(members, vocab_size=9, costs=STEEP), count) for count in (1, 3, 12)]
    assert min(lengths[0]) > max(lengths[1]) > max(lengths[2])


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("costs", [STEEP, PassCosts(((1, 1.0), (4, 1.05), (5, 2.0), (64, 2.1)))])
def test_requests_that_share_a_pass_lose_no_more_than_each_may(count, costs):
    """Also where a step in the costs makes each draft look free beside the others."""
    cascade = CascadeDrafter([Member(Endless("lookup", 0.9))], vocab_size=9, costs=costs)
    contexts = {number: [1, 2, 3] for number in range(count)}
    lost = 0.0
    for _ in range(200):
        drafts = cascade.propose([DraftRequest(n, list(context), 20, None, None) for n, context in contexts.items()])
        lost += costs.at(sum(1 + len(draft) for draft in drafts)) - costs.at(count)
        for number, draft in enumerate(drafts):
            if len(draft):
                cascade.observe(number, VerificationResult(0, 5, Outcome.RECOVERED))
            contexts[number].append(1)
    overdrawn = max(costs.at(count + rows) - costs.at(count) for rows in range(20)) / count  # by the last draft
    assert lost <= count * (TRIAL + overdrawn) + SHARE * 200 * costs.at(count)


def test_rows_of_sequences_that_do_not_draft_count_as_load():
    def length(num_other_rows):
        cascade = CascadeDrafter([Member(Endless("lookup", 0.6))], vocab_size=9, costs=STEEP)
        request = DraftRequest(0, [1, 2, 3], 20, None, None, num_other_rows=num_other_rows)
        return len(cascade.propose([request])[0])

    assert length(0) > length(7) == 0


def test_a_model_is_told_how_likely_the_next_token_must_be_looked_at():
    seen = []

    class Listening(Endless):
        def propose(self, requests):
            seen.extend(requests)
            return super().propose(requests)

    CascadeDrafter([Member(Listening(), MODEL, 6)], vocab_size=9, costs=COSTS).propose(
        [DraftRequest(0, [1, 2, 3], 20, None, None)]
    )
    (request,) = seen
    # A token a unit of cost, to be earned by the chance of two in three that a token is right: see the prior.
    price = (MODEL.at(1) + 0.025) * 3 / 2
    assert request.least_chances[0] == 0
    assert request.least_chances[2:] == pytest.approx([price] * (len(request.least_chances) - 2))


def test_a_model_pays_for_its_own_passes_however_few_of_the_targets_tokens_they_make():
    class Wordy(Endless):
        def _draft(self, count):
            return Draft((7,), num_passes=count)

    cascade = CascadeDrafter([Member(Wordy(), MODEL, 6)], vocab_size=9, costs=COSTS)
    run = Run(cascade)
    run.round(0)
    record, balance = cascade._memories[0].standings[0].record, cascade._memories[0].standings[0].credit.balance
    assert record.passes - record.drafted == pytest.approx(5)  # six passes for one token
    assert balance == pytest.approx(TRIAL - 6 * MODEL.at(1) - COSTS.at(2) + 1)


def test_what_one_request_taught_the_next_one_knows():
    cascade = CascadeDrafter([Member(Endless(), MODEL, 6)], vocab_size=9, costs=COSTS)
    first_rounds = []
    for _ in range(8):
        run = Run(cascade)
        first_rounds.append(run.round(0))
        for _ in range(40):
            run.round(0)
        cascade.release(0)
    assert first_rounds[0] > 0
    assert max(first_rounds[4:]) <= 1  # a look, for which those before have waited
    assert sum(first_rounds[4:]) <= 4 * 41 * SHARE / MODEL.at(1)


def test_records_credit_and_lengths_by_hand():
    record = Record(2.0, 8.0, 8.0, 6.0)
    assert record.chance == 0.75
    record.observe(3, 3, 1, 0.5)
    assert (record.rounds, record.passes, record.drafted, record.accepted) == (2.0, 7.0, 7.0, 4.0)
    assert record.worth(1.0) == Record(1.0, 3.5, 3.5, 2.0)
    credit = Credit()
    credit.wait(100.0)
    assert credit.balance == pytest.approx(TRIAL + 100 * SHARE)
    assert credit.may_probe(0.4, 0.1)
    assert not credit.may_probe(0.4, 0.2)
    credit.settle(0.0, 1.0)
    assert not credit.may_probe(0.1, 0.0)
    credit.settle(1.0, 0.6, is_probe=True)
    assert credit.may_probe(0.6, 0.4)
    assert not credit.may_probe(0.6, 0.5)
    credit.balance = 0.5
    assert not credit.may_probe(0.6, 0.0)
    lengths = AnswerLengths()
    assert (lengths.remaining(0, 1000), lengths.remaining(0, 20), lengths.remaining(80, None)) == (50, 20, 80)
    for length in (10, 20, 30):
        lengths.observe(length)
    assert lengths.remaining(10, 1000) == pytest.approx((10 + 20 + 50) / 3)
