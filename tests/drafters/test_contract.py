"""The checks that other projects' drafters go through: ours pass them, and each way of breaking the contract fails."""

from dataclasses import replace

import numpy as np
import pytest
from engine_fakes import PlannedDrafter

from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.choosing import Member
from outrider.drafters.contract import check_drafter
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter
from outrider.errors import UsageError
from outrider.types import Draft


def model(**options):
    return DraftModelDrafter(ToyBackend(HashLM(3, seed=9)), vocab_size=3, name="toy", **options)


def cascade():
    return CascadeDrafter([Member(model(), PassCosts(((1, 0.01), (2, 0.01))), 1), Member(NgramDrafter())], vocab_size=3)


@pytest.mark.parametrize("make", [NgramDrafter, model, lambda: model(tree_size=3), cascade])
def test_our_own_pass(make):
    check_drafter(make, vocab_size=3, learns=make is cascade)


class Wrapped:
    """A good drafter, spoilt."""

    name = "spoilt"

    def __init__(self):
        self.inner = model()
        self.observe, self.release = self.inner.observe, self.inner.release

    def propose(self, requests):
        return [
            self.spoil(draft, request) for draft, request in zip(self.inner.propose(requests), requests, strict=True)
        ]


class TooLong(Wrapped):
    def spoil(self, draft, request):
        return Draft((0,) * (request.max_tokens + 1))


class UnknownIds(Wrapped):
    def spoil(self, draft, request):
        return Draft((3,) * request.max_tokens)


class SaysItChose(Wrapped):
    def spoil(self, draft, request):
        return replace(draft, probs=None)


class TellsAnotherLaw(Wrapped):
    def spoil(self, draft, request):
        return draft if draft.probs is None else replace(draft, probs=np.full((len(draft), 3), 1 / 3))


class NoLaw(Wrapped):
    def spoil(self, draft, request):
        return draft if draft.probs is None else replace(draft, probs=np.full((len(draft), 3), 0.3))


class DropsWhatItDrew(Wrapped):
    def spoil(self, draft, request):
        return Draft(()) if draft.token_ids[:1] == (2,) else draft


class Modifies(Wrapped):
    def spoil(self, draft, request):
        request.context_ids.append(1)
        return draft


class Forgets(Wrapped):
    def propose(self, requests):
        return super().propose(requests[:1])

    def spoil(self, draft, request):
        return draft


class Remembers(PlannedDrafter):
    def __init__(self):
        super().__init__(lambda context: (len(self.seen) % 3,))
        self.seen = set()

    def propose(self, requests):
        self.seen |= {len(request.context_ids) for request in requests}
        return super().propose(requests)


class Mixes(NgramDrafter):
    def propose(self, requests):
        return super().propose([replace(request, request_id=0) for request in requests])


class Fickle(PlannedDrafter):
    def __init__(self):
        turns = iter(range(10**6))
        super().__init__(lambda context: (next(turns) % 3,))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (TooLong, "at most 0 tokens"),
        (UnknownIds, "ids from 0 to 2"),
        (TellsAnotherLaw, "law of what is emitted is off"),
        (NoLaw, "sum"),
        (DropsWhatItDrew, "law of what is emitted is off"),
        (Modifies, "modified the context"),
        (Forgets, "1 drafts for 2 requests"),
        (Remembers, "remembers a request"),
        (Mixes, "depends on another request"),
        (Fickle, "asked again"),
        (lambda: object(), "lacks a name"),
    ],
)
def test_each_way_of_breaking_the_contract_is_found(make, words):
    with pytest.raises((AssertionError, UsageError), match=words):
        check_drafter(make, vocab_size=3)


def test_what_was_drawn_may_be_called_chosen():
    """It is verified as point masses then: right for any token, at the cost of acceptance."""
    check_drafter(SaysItChose, vocab_size=3)
