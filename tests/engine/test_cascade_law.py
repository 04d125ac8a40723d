"""A cascade keeps the target's law, drawn and chosen tokens in one draft; one that looks at what it drew does not."""

from dataclasses import replace

import pytest
from engine_fakes import answer, compiled, make_stepper
from test_law import NUM_TOKENS, PROMPT, TARGET, SameCoins, draft_model

from outrider.backends.metered import Pass
from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.engine.sequence import Request
from outrider.sampling.params import SamplingParams
from outrider.types import Draft, TreeDraft
from outrider.verification.exact import outcomes, sequence_law, total_variation
from outrider.verification.law import LawRows

GREEDY = SamplingParams(max_tokens=40)
FLAT = PassCosts(((1, 1.0), (2, 1.0)))


def is_mixed(draft):
    return draft.probs is not None and len(draft.probs) < len(draft)


class Spied(CascadeDrafter):
    """Counts drafts in which drawn tokens are followed by chosen ones."""

    num_mixed = 0

    def propose(self, requests):
        drafts = super().propose(requests)
        self.num_mixed += sum(is_mixed(draft) for draft in drafts)
        return drafts


class Anticipating(CascadeDrafter):
    """Draws, and keeps what it drew only if it likes it."""

    def propose(self, requests):
        return [
            Draft(()) if is_mixed(draft) or draft.token_ids[:1] == (2,) else draft
            for draft in super().propose(requests)
        ]


class Dishonest(CascadeDrafter):
    """Says that a drawn token was chosen."""

    def propose(self, requests):
        return [replace(draft, probs=None) for draft in super().propose(requests)]


class Miscounting(CascadeDrafter):
    """Says that what was looked up was drawn as the first token was."""

    def propose(self, requests):
        return [
            replace(draft, probs=LawRows([draft.probs[0]] * len(draft), 3)) if is_mixed(draft) else draft
            for draft in super().propose(requests)
        ]


class AnotherRule(CascadeDrafter):
    """Tells a chain as a tree if something follows what was drawn, which is then verified token by token."""

    def propose(self, requests):
        return [
            TreeDraft(draft.token_ids, draft.parents, (*draft.probs, *[None] * (len(draft) + 1 - len(draft.probs))))
            if is_mixed(draft)
            else draft
            for draft in super().propose(requests)
        ]


class TimedByToken(CascadeDrafter):
    """Its model's passes take as long as what they say demands, which it learns in the next round."""

    def __init__(self, members, **options):
        self.noted, self.lengths = [], []
        super().__init__([replace(member, passes=self.noted) for member in members], **options)

    def propose(self, requests):
        drafts = super().propose(requests)
        for draft in drafts:
            self.lengths.append(len(draft))
            self.noted += [Pass("toy", ((1, 0),), 0.05 if 2 in draft.token_ids else 0.6, 1)] * 9
        return drafts


class Impatient(TimedByToken):
    """Drops a draft for the time that drafting it took."""

    def propose(self, requests):
        drafts = super().propose(requests)
        return [Draft(()) if one.seconds < 0.1 else draft for draft, one in zip(drafts, self.noted[::9], strict=True)]


class Doubting(CascadeDrafter):
    """Cuts a draft where what was drawn is unlikely, as if it were short of rows."""

    def propose(self, requests):
        return [cut_in_doubt(draft) for draft in super().propose(requests)]


def cut_in_doubt(draft):
    drawn = () if draft.probs is None else zip(draft.probs, draft.token_ids, strict=False)
    likely = [law[token_id] >= 0.3 for law, token_id in drawn]
    length = likely.index(False) if False in likely else len(draft)
    return Draft(draft.token_ids[:length], None if draft.probs is None else LawRows(list(draft.probs)[:length], 3))


class Unsure(DraftModelDrafter):
    """Stops where it is told that one more token is not worth it, which is soon."""

    def propose(self, requests):
        return super().propose([replace(request, least_chances=(0.0, 0.7, 0.45)) for request in requests])


def controlled(kind, *, model_tokens=3, chance=None):
    """A draft model alone, which has to share its passes with another answer."""
    model = Unsure(ToyBackend(HashLM(3, seed=9)), vocab_size=3, name="toy")
    steep = PassCosts(((1, 1.0), (3, 1.1), (4, 1.3), (8, 3.0)))
    return kind([Member(model, PassCosts(((1, 0.05), (2, 0.06))), model_tokens, chance)], vocab_size=3, costs=steep)


def cascade(kind, *, model_tokens=1, cost=0.01):
    model = draft_model(9, vocab_size=3)
    members = [Member(model, PassCosts(((1, cost), (2, cost))), model_tokens), Member(NgramDrafter(costs=FLAT))]
    return kind(members, vocab_size=3, costs=FLAT)


def distance(drafter_of, rule="token", k=2, num_tokens=NUM_TOKENS, *, beside=False):
    params = SamplingParams(temperature=1.0, max_tokens=num_tokens)
    made = []

    def one_answer(coins):
        made.append(drafter_of())
        stepper = make_stepper(TARGET, drafter=made[-1], k=k, rule=rule, max_tree_tokens=4)
        sequence = stepper.open(Request(0, PROMPT, compiled(params, 3), seed=0))
        sequence.coins = SameCoins(coins)
        others = [stepper.open(Request(1, PROMPT, compiled(GREEDY, 3), seed=0))] if beside else []
        while sequence.finish_reason is None:
            stepper.step([sequence, *others])
        assert sequence.draft_problem is None
        return tuple(sequence.token_ids[len(PROMPT) :])

    emitted = outcomes(one_answer)
    assert sum(emitted.values()) == pytest.approx(1)
    wanted = sequence_law(lambda prefix: exact_probs(TARGET, prefix), num_tokens, PROMPT)
    return float(total_variation(emitted, wanted)), made


@pytest.mark.parametrize("rule", ["token", "block"])
@pytest.mark.parametrize(("model_tokens", "k", "num_tokens"), [(1, 2, 4), (2, 2, 4), (2, 3, 5)])
def test_the_law_of_a_cascade_is_the_targets(rule, model_tokens, k, num_tokens):
    off, made = distance(lambda: cascade(Spied, model_tokens=model_tokens), rule, k, num_tokens)
    assert off < 1e-6
    assert (sum(one.num_mixed for one in made) > 0) == (model_tokens < k)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(("rule", "chance"), [("token", None), ("block", None), ("block", 0.3)])
def test_the_law_under_a_controller_is_the_targets(rule, chance, beside):
    off, made = distance(lambda: controlled(CascadeDrafter, chance=chance), rule, 3, 4, beside=beside)
    assert off < 1e-6
    assert {len(one.members) for one in made} == {1}


def test_the_law_is_the_targets_where_choices_depend_on_what_past_passes_took():
    off, made = distance(lambda: controlled(TimedByToken), "token", 3, 4)
    assert off < 1e-6
    assert {one.lengths[1] for one in made if len(one.lengths) > 1} >= {0, 1}


def test_a_controller_that_heeds_what_the_passes_of_its_round_took_is_caught():
    off, _ = distance(lambda: controlled(Impatient), "token", 3, 4)
    assert off > 1e-2


@pytest.mark.parametrize("beside", [False, True])
def test_a_controller_that_cuts_what_was_drawn_is_caught(beside):
    off, _ = distance(lambda: controlled(Doubting), "token", 3, 4, beside=beside)
    assert off > 1e-2


@pytest.mark.parametrize(("kind", "distance_of_laws"), [(Anticipating, 0.1140154050), (Miscounting, 0.2258735120)])
def test_a_cascade_that_breaks_the_rules_is_caught(kind, distance_of_laws):
    off, _ = distance(lambda: cascade(kind))
    assert off == pytest.approx(distance_of_laws, abs=1e-9)


def test_what_follows_a_draft_must_not_decide_the_rule_for_it():
    off, _ = distance(lambda: cascade(AnotherRule, model_tokens=2), "block", k=3, num_tokens=5)
    assert off == pytest.approx(0.0234022544, abs=1e-9)


def test_to_call_a_drawn_token_chosen_costs_acceptance_only():
    off, _ = distance(lambda: cascade(Dishonest))
    assert off < 1e-6


@pytest.mark.parametrize("params", [{}, {"temperature": 0.9, "seed": 3}])
def test_a_text_does_not_depend_on_who_drafted(params):
    settings = SamplingParams(max_tokens=20, **params)
    texts = set()
    for cost, model_tokens, k in [(0.01, 1, 3), (0.2, 2, 2), (0.5, 3, 8), (5.0, 3, 8)]:
        drafter = cascade(CascadeDrafter, cost=cost, model_tokens=model_tokens)
        (sequence,) = answer(make_stepper(TARGET, drafter=drafter, k=k, max_tree_tokens=k), [PROMPT], settings)
        texts.add(tuple(sequence.token_ids))
    (plain,) = answer(make_stepper(TARGET), [PROMPT], settings)
    assert texts == {tuple(plain.token_ids)}
