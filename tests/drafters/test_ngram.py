"""Drafts by looking up: what is proposed, how long it gets, and that every round costs little."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.drafters.base import DraftRequest
from outrider.drafters.gain import PassCosts
from outrider.drafters.ngram import NgramDrafter

FLAT = PassCosts(((1, 1.0), (2, 1.0)))
FILE = [*range(200, 300)]


def ask(drafter, context, max_tokens=100, request_id=0, **fields):
    (draft,) = drafter.propose([DraftRequest(request_id, context, max_tokens, shaper=None, coins=None, **fields)])
    assert draft.probs is None
    assert len(draft.confidences) == len(draft.sources) == len(draft)
    return draft


def propose(drafter, context, max_tokens=100, request_id=0, **fields):
    return ask(drafter, context, max_tokens, request_id, **fields).token_ids


def drafting(costs=FLAT, **options):
    return NgramDrafter(costs=costs, **options)


def decode(drafter, prompt, answer, max_tokens=64, **fields):
    """Return how many rounds an answer takes, and its drafts."""
    context, drafts = [*prompt, answer[0]], []
    while len(context) < len(prompt) + len(answer):
        rest = answer[len(context) - len(prompt) :]
        draft = ask(drafter, context, max_tokens, **fields)
        right = next((n for n, pair in enumerate(zip(draft.token_ids, rest, strict=False)) if pair[0] != pair[1]), None)
        num_accepted = min(len(draft), len(rest)) if right is None else right
        if len(draft):
            drafter.observe(0, None)
        context = context + rest[: num_accepted + 1]
        drafts.append((draft, num_accepted))
    return drafts


def test_a_worked_example():
    # "2 3" occurred before; 7 8 came after it.
    assert propose(drafting(), [1, 2, 3, 7, 8, 4, 2, 3], 2) == (7, 8)


def test_a_longer_match_beats_a_later_one():
    assert propose(drafting(), [1, 2, 3, 7, 2, 3, 8, 1, 2, 3], 1) == (7,)


def test_a_repetition_is_continued_with_its_period():
    assert propose(drafting(), [5, 1, 2, 1, 2], 7) == (1, 2, 1, 2, 1, 2, 1)


@pytest.mark.parametrize("context", [[], [1], [1, 2], [1, 2, 3, 4]])
def test_nothing_is_proposed_without_a_match(context):
    assert propose(drafting(), context) == ()


def test_a_draft_grows_with_the_match():
    lengths = [len(propose(NgramDrafter(), [*FILE, 0, *FILE[:n]], 64)) for n in (1, 4, 20)]
    assert lengths == sorted(set(lengths))
    assert lengths[0] < 8 < 16 <= lengths[-1]


def test_a_draft_shrinks_where_passes_cost_more():
    steep = PassCosts(((1, 1.0), (2, 1.5)))
    assert len(propose(NgramDrafter(costs=steep), [*FILE, 0, *FILE[:4]])) < len(
        propose(NgramDrafter(), [*FILE, 0, *FILE[:4]])
    )


def test_drafts_grow_when_they_are_right_and_cease_when_they_are_wrong():
    right, wrong = NgramDrafter(), NgramDrafter()
    text = [n for m in range(60) for n in (1, 500 + m)]  # after "1" always something new
    lengths = [len(draft) for draft, _ in decode(wrong, text[:10], text[10:])]
    assert sum(lengths[:20]) > sum(lengths[-20:])
    repeated = [1, 2, 3] * 60
    drafts = decode(right, repeated[:6], repeated[6:])
    assert drafts[-2][1] >= drafts[0][1] > 0


def test_a_file_with_a_renaming_takes_few_rounds():
    source = [token for n in range(20) for token in (*range(300 + 14 * n, 314 + 14 * n), 50, 51)]
    edited = [token for n in range(20) for token in (*range(300 + 14 * n, 314 + 14 * n), 60, 61, 62)]
    drafts = decode(drafting(), [7, 7, *source, 8, 9], edited)
    assert len(drafts) < 20
    predicted = decode(drafting(), [7, 7], edited, prediction_ids=source)
    assert len(predicted) < 14
    assert {source for draft, _ in predicted for source in draft.sources} <= {"prediction", "ngram"}


def test_a_prediction_is_drafted_from_the_first_token_on_and_named():
    draft = ask(drafting(), [1, 2, FILE[0]], 10, prediction_ids=FILE)
    assert draft.token_ids == tuple(FILE[1:11])
    assert set(draft.sources) == {"prediction"}


def test_a_draft_is_continued_and_not_learned():
    drafter = drafting()
    context = [*FILE, 0, 1]
    assert propose(drafter, context, 4, draft_ids=FILE[30:34]) == tuple(FILE[34:38])
    assert propose(drafter, [*context, 1], 4) == (1,) * 4
    assert propose(drafter, [*context, 1, FILE[33]], 1) == (FILE[34],)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60), st.lists(st.integers(0, 3), max_size=30), st.integers(1, 9)
)
def test_whatever_happens_a_draft_keeps_the_contract(text, prediction, max_tokens):
    drafter = NgramDrafter()
    for draft, _ in decode(drafter, text[:1], text, max_tokens, prediction_ids=prediction):
        assert len(draft) <= max_tokens
        assert set(draft.token_ids) <= set(range(4))
        assert all(0 < chance < 1 for chance in draft.confidences)


def test_a_draft_is_a_function_of_what_was_asked_and_asking_again_is_no_outcome():
    drafter, other = NgramDrafter(), NgramDrafter()
    context = [*FILE, 0, *FILE[:20]]
    assert ask(drafter, context) == ask(other, context)
    assert ask(drafter, context).token_ids[:10] == ask(drafter, context).token_ids[:10] == tuple(FILE[20:30])
    assert ask(drafter, [*context, 220]).token_ids[:9] == ask(other, [*context, 220]).token_ids[:9]


def test_requests_do_not_see_each_other_and_release_forgets():
    drafter = drafting()
    assert propose(drafter, [1, 2, 3, 1, 2], 1, request_id=1) == (3,)
    assert propose(drafter, [9, 1, 2], 1, request_id=2) == ()
    drafter.observe(3, None)
    drafter.release(1)
    drafter.release(1)
    assert propose(drafter, [4, 1, 2], 1, request_id=1) == ()


def test_a_round_looks_at_the_end_of_the_context_only():
    class Counting(list):
        looked_at = 0

        def __getitem__(self, key):
            item = super().__getitem__(key)
            self.looked_at += len(item) if isinstance(key, slice) else 1
            return item

    drafter = drafting()
    context = Counting([*range(5000), *range(5000)])
    propose(drafter, context)
    context.append(5)
    context.looked_at = 0
    propose(drafter, context)
    assert context.looked_at < 1000
