"""The draft model's cache follows the context, its laws are the ones it drew from, and it never fails the target."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from outrider.backends.prefill import PIECE
from outrider.backends.toy import HashLM, ToyBackend, exact_probs
from outrider.drafters.base import DraftRequest
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.errors import UsageError
from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params
from outrider.verification import CoinSource, Purpose

MODEL = HashLM(vocab_size=9, seed=6)
GREEDY = SamplingParams()
SAMPLED = SamplingParams(temperature=1.0)


class SpyBackend(ToyBackend):
    """Notes how many tokens each pass feeds."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fed = []

    def forward(self, batch):
        self.fed.append([len(rows.token_ids) for rows in batch])
        return super().forward(batch)


def make(model=MODEL, vocab_size=9, **options):
    backend = SpyBackend(model, **({"max_length": options.pop("max_length")} if "max_length" in options else {}))
    return DraftModelDrafter(backend, vocab_size=vocab_size, name="toy", **options), backend


def request(context, max_tokens=4, params=GREEDY, request_id=0):
    coins = CoinSource(3).at(len(context), Purpose.DRAFT)
    compiled = compile_params(params, Vocabulary(SimpleNamespace(eos_ids=()), 9))
    return DraftRequest(request_id, context, max_tokens, LawShaper(compiled, context), coins)


def greedy(context, count, model=MODEL):
    context = list(context)
    for _ in range(count):
        weights = model.weights(context)
        context.append(weights.index(max(weights)))
    return tuple(context[len(context) - count :])


def test_a_greedy_draft_is_what_the_model_would_say():
    drafter, _ = make()
    (draft,) = drafter.propose([request([1, 2, 3])])
    assert draft.token_ids == greedy([1, 2, 3], 4)
    assert draft.probs is None


@pytest.mark.parametrize("num_accepted", range(5))
def test_the_cache_follows_the_context_after_every_outcome(num_accepted):
    drafter, backend = make()
    context = [1, 2, 3]
    for _ in range(4):
        (draft,) = drafter.propose([request(list(context))])
        assert draft.token_ids == greedy(context, 4)
        context += draft.token_ids[:num_accepted]
        context.append(8)
    # The last draft token is never fed, so a draft that was accepted whole leaves two tokens to feed.
    assert [fed[0] for fed in backend.fed[4:8]] == [2 if num_accepted == 4 else 1, 1, 1, 1]


def test_the_cache_follows_a_context_that_grew_by_other_tokens():
    drafter, _ = make()
    drafter.propose([request([1, 2, 3])])
    grown = [1, 2, 3, *((token_id + 1) % 9 for token_id in greedy([1, 2, 3], 3))]
    assert drafter.propose([request(grown)])[0].token_ids == greedy(grown, 4)


def test_a_context_that_has_not_grown_is_drafted_for_again():
    drafter, _ = make()
    first, second = (drafter.propose([request([1, 2, 3])])[0] for _ in range(2))
    assert first == second


def test_a_sampled_draft_returns_the_very_laws_it_was_drawn_from():
    drafter, _ = make()
    (draft,) = drafter.propose([request([1, 2], params=SAMPLED)])
    coins = CoinSource(3).at(2, Purpose.DRAFT)
    for row, token_id in enumerate(draft.token_ids):
        law = exact_probs(MODEL, [1, 2, *draft.token_ids[:row]]).astype(float)
        np.testing.assert_allclose(np.asarray(draft.probs[row]), law, rtol=1e-6)
        assert coins.draw(draft.probs[row]) == token_id
    assert draft.probs.dtype == np.float64
    assert draft.probs.shape == (4, 9)


def test_the_requests_limits_shape_the_draft_too():
    params = SamplingParams(temperature=0.7, top_k=2)
    drafter, _ = make()
    (draft,) = drafter.propose([request([1, 2], params=params)])
    assert (np.count_nonzero(np.asarray(draft.probs), axis=1) == 2).all()


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_a_wider_vocabulary_never_proposes_what_the_target_lacks(params):
    drafter, _ = make(HashLM(30, seed=1), vocab_size=4)
    for start in range(20):
        (draft,) = drafter.propose([request([start % 4, 2], params=params, request_id=start)])
        assert max(draft.token_ids) < 4
        if draft.probs is not None:
            assert draft.probs.shape == (4, 4)
            np.testing.assert_allclose(np.asarray(draft.probs).sum(axis=1), 1.0)


def test_a_narrower_vocabulary_pads_its_laws_with_zeros_and_gives_up_on_tokens_it_lacks():
    drafter, _ = make(HashLM(5, seed=1), vocab_size=9)
    (draft,) = drafter.propose([request([1, 2], params=SAMPLED)])
    assert draft.probs.shape == (4, 9)
    assert not np.asarray(draft.probs)[:, 5:].any()
    (draft,) = drafter.propose([request([1, 2, 8], params=SAMPLED)])
    assert draft.token_ids == ()


def test_it_stops_when_its_context_is_full():
    drafter, backend = make(max_length=6)
    lengths = [len(drafter.propose([request(list(range(n)))])[0]) for n in (3, 4, 5, 6, 7, 8)]
    # A token may be fed at the last position, and the one it leads to be proposed, but not fed any more.
    assert lengths == [4, 3, 2, 1, 0, 0]
    assert max(map(len, backend._caches.values())) <= 6


def test_it_stops_after_a_token_that_ends_the_text():
    token_ids = greedy([1, 2, 3], 4)
    drafter, _ = make(stop_ids=(token_ids[1],))
    (draft,) = drafter.propose([request([1, 2, 3])])
    assert draft.token_ids == token_ids[:2]


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_it_stops_once_it_is_no_longer_confident_but_takes_nothing_back(params):
    in_full = make()[0].propose([request([1, 2, 3], 8, params)])[0]
    confidence = 1.0
    for length in range(1, 9):
        confidence *= float(max(exact_probs(MODEL, [1, 2, 3, *in_full.token_ids[: length - 1]])))
        for min_confidence, expected in ((confidence * 1.01, length), (confidence * 0.99, length + 1)):
            drafter, _ = make(min_confidence=min_confidence)
            (draft,) = drafter.propose([request([1, 2, 3], 8, params)])
            assert draft.token_ids == in_full.token_ids[:expected]


def test_requests_share_passes_and_do_not_see_each_other():
    drafter, backend = make()
    contexts = [[1], [2, 3, 4], [5, 6]]
    drafts = drafter.propose([request(context, n + 1, request_id=n) for n, context in enumerate(contexts)])
    assert [draft.token_ids for draft in drafts] == [greedy(context, n + 1) for n, context in enumerate(contexts)]
    assert backend.fed == [[1, 3, 2], [1, 1], [1]]


def test_a_long_prompt_goes_in_pieces():
    drafter, backend = make()
    context = [n % 9 for n in range(2 * PIECE + 3)]
    assert drafter.propose([request(context, 2)])[0].token_ids == greedy(context, 2)
    assert backend.fed == [[PIECE], [PIECE], [3], [1]]


def test_nothing_is_computed_for_a_request_without_room():
    drafter, backend = make()
    assert drafter.propose([request([1, 2], max_tokens=0)])[0].token_ids == ()
    assert not backend.fed


def test_release_frees_the_cache():
    drafter, backend = make()
    drafter.propose([request([1, 2], request_id=n) for n in range(3)])
    for request_id in (0, 1, 2, 2, 99):
        drafter.release(request_id)
    assert not backend._caches


@pytest.mark.parametrize("settings", [{}, {"allowed_token_ids": [1, 2, 3]}, {"frequency_penalty": 1.0}])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [0, 3])
def test_logits_that_are_not_numbers_end_the_draft_and_are_told(bad, temperature, settings, place):
    class Broken(ToyBackend):
        def forward(self, batch):
            logits = super().forward(batch)
            logits[[rows.token_ids[-1] == 5 for rows in batch], place] = bad
            return logits

    drafter = DraftModelDrafter(Broken(MODEL), vocab_size=9, name="toy")
    params = SamplingParams(temperature=temperature, **settings)
    broken, fine = drafter.propose([request([1, 5], params=params), request([1, 2], 1, params, 1)])
    assert broken.token_ids == ()
    assert f"has {bad}" in broken.problem
    assert len(fine) == 1
    assert fine.problem is None
    assert drafter.propose([request([1, 5, 2], 1, params)])[0].problem is None


# --- what several requests begin with


PROMPT = [token_id % 9 for token_id in range(5, 345, 7)]  # 49 tokens


def fed(backend):
    return sum(map(sum, backend.fed))


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_what_requests_of_a_round_begin_with_is_read_once(params):
    contexts = [[*PROMPT, 1], [*PROMPT, 2], [*PROMPT, 2, 3], [1, 2, 3]]
    drafter, backend = make()
    together = drafter.propose([request(one, params=params, request_id=number) for number, one in enumerate(contexts)])
    assert fed(backend) == 49 + 1 + 1 + 2 + 3 + 4 * 3
    for draft, context in zip(together, contexts, strict=True):
        (alone,) = make()[0].propose([request(context, params=params)])
        assert draft.token_ids == alone.token_ids
        assert np.array_equal(np.asarray(draft.probs), np.asarray(alone.probs))


def test_it_is_read_once_and_no_faster_than_others_can_wait_for():
    contexts = [[*PROMPT * 4, 1], [*PROMPT * 4, 2], [*PROMPT * 4, 2, 3]]
    requests = [replace(request(one, request_id=number), max_read_tokens=40) for number, one in enumerate(contexts)]
    drafter, backend = make()
    for number in range(1, 5):
        drafts = drafter.propose(requests)
        assert [(draft.token_ids, draft.is_reading) for draft in drafts] == [((), True)] * 3
        assert fed(backend) == 40 * number
    drafts = drafter.propose(requests)
    assert fed(backend) == 160 + 37 + 3
    assert [draft.token_ids for draft in drafts] == [greedy(contexts[0], 4), (), ()]
    drafts = drafter.propose(requests)
    assert fed(backend) == 160 + 37 + 3 + 1 + 1 + 2 + 3 * 3
    assert [draft.token_ids for draft in drafts] == [greedy(one, 4) for one in contexts]


def test_those_who_wait_for_a_round_wait_for_so_much_reading_of_all_together():
    contexts = [[number, *PROMPT[:39], number] for number in range(4)]  # 41 tokens
    requests = [replace(request(one, request_id=number), max_read_tokens=50) for number, one in enumerate(contexts)]
    drafter, backend = make()
    read_by_round = []
    while True:
        before = fed(backend)
        drafts = drafter.propose(requests)
        read_by_round.append((fed(backend) - before, [draft.is_reading for draft in drafts]))
        for draft, context in zip(drafts, contexts, strict=True):
            assert draft.token_ids == (() if draft.is_reading else greedy(context, 4))
        if not any(draft.is_reading for draft in drafts):
            break
    # What an open request has left to be fed, here its last token, and the three passes after that do not count.
    assert read_by_round == [
        (41 + 9 + 3, [False, True, True, True]),
        (1 + 32 + 18 + 2 * 3, [False, False, True, True]),
        (1 + 1 + 23 + 27 + 3 * 3, [False, False, False, True]),
        (1 + 1 + 1 + 14 + 4 * 3, [False] * 4),
    ]


def test_nobody_waits_for_a_request_that_will_read_nothing():
    drafter, _ = make(HashLM(8, seed=1))
    known = [token_id % 8 for token_id in PROMPT]
    requests = [
        replace(request(context, request_id=number), max_read_tokens=100)
        for number, context in enumerate([[*known, 8, 1], [*known, 1]])  # the draft model knows no token 8
    ]
    drafts = drafter.propose(requests)
    assert [len(draft) for draft in drafts] == [0, 4]


def test_a_request_that_comes_later_shares_with_those_that_are_open():
    drafter, backend = make()
    drafter.propose([request([*PROMPT, 1])])
    grown = [*PROMPT, 1, *greedy([*PROMPT, 1], 2), 8]
    drafter.propose([request(grown)])
    before = fed(backend)
    (draft,) = drafter.propose([request([*grown[:-1], 7], request_id=1)])
    assert fed(backend) - before == 1 + 3
    assert draft.token_ids == greedy([*grown[:-1], 7], 4)
    for request_id in (0, 1):
        drafter.release(request_id)
    assert not backend._caches
    before = fed(backend)
    drafter.propose([request([*PROMPT, 1], request_id=2)])
    assert fed(backend) - before == 50 + 3


def test_a_tree_that_failed_is_in_nobodys_way():
    class Failing(SpyBackend):
        def forward(self, batch):
            logits = super().forward(batch)
            return logits[:0] if len(self.fed) == 2 else logits

    drafter = DraftModelDrafter(Failing(MODEL), vocab_size=9, name="toy", tree_size=6)
    first, second = (replace(request([*PROMPT, one], request_id=one), max_tree_tokens=6) for one in (1, 2))
    with pytest.raises(ValueError, match="shorter"):
        drafter.propose([first])
    (draft,) = drafter.propose([second])
    assert draft == make(tree_size=6)[0].propose([second])[0]


def test_a_few_tokens_are_not_worth_sharing():
    drafter, backend = make()
    drafter.propose([request([*PROMPT[:31], 1 + number], request_id=number) for number in range(2)])
    assert backend.fed[0] == [32, 32]


def test_what_a_donor_has_forgotten_is_read_again():
    class Windowed(SpyBackend):
        def crop(self, sequence_id, length):
            if self.length(sequence_id) - length > 5:
                raise UsageError("it has forgotten what lies before")
            super().crop(sequence_id, length)

    backend = Windowed(MODEL)
    drafter = DraftModelDrafter(backend, vocab_size=9, name="toy")
    drafter.propose([request([*PROMPT, *PROMPT])])
    (draft,) = drafter.propose([request([*PROMPT, 1], request_id=1)])
    assert draft.token_ids == greedy([*PROMPT, 1], 4)
    assert len(backend._caches) == 2


def test_tokens_that_the_draft_lacks_are_not_read_together():
    drafter, backend = make(HashLM(5, seed=1))
    drafts = drafter.propose([request([*PROMPT, 1 + number], request_id=number) for number in range(2)])
    assert [draft.token_ids for draft in drafts] == [(), ()]
    assert not backend.fed


# --- contexts that are kept


@pytest.mark.parametrize("params", [GREEDY, SAMPLED])
def test_the_next_turn_of_a_chat_is_read_from_where_the_last_one_ended(params):
    drafter, backend = make()
    drafter.keep_contexts(1000)
    drafter.propose([request([*PROMPT, 1], params=params)])
    drafter.release(0)
    turn = [*PROMPT, 1, 8, 7]
    assert drafter.num_held(turn) == 50
    before = fed(backend)
    (draft,) = drafter.propose([request(turn, params=params, request_id=1)])
    assert fed(backend) - before == 2 + 3
    (alone,) = make()[0].propose([request(turn, params=params)])
    assert draft.token_ids == alone.token_ids
    assert np.array_equal(np.asarray(draft.probs), np.asarray(alone.probs))
    drafter.release(1)
    assert drafter.num_held(turn) == 51  # all but the last, which has its own pass
    drafter.keep_contexts(0)
    assert drafter.num_held(turn) == 0
    assert not backend._caches


def test_nothing_is_kept_unless_asked_for_and_few_tokens_are_not_worth_it():
    drafter, backend = make()
    drafter.propose([request(PROMPT)])
    drafter.release(0)
    assert not backend._caches
    drafter.keep_contexts(1000)
    drafter.propose([request(PROMPT)])
    assert drafter.num_held([*PROMPT[:31], 8, 8]) == 0
    assert drafter.num_held([*PROMPT[:32], 8, 8]) == 32


def test_what_is_kept_makes_room_for_what_is_open():
    drafter, backend = make()
    drafter.keep_contexts(125, grain=10)
    for number in range(3):  # each takes 50 of them, and 40 when it has ended
        drafter.propose([request([number, *PROMPT[:39]], request_id=number)])
        drafter.release(number)
        assert len(backend._caches) == min(2, number + 1)
    assert drafter.num_held([0, *PROMPT]) == 0
    assert drafter.num_held([1, *PROMPT]) == 40
    drafter.propose([request([3, *PROMPT, *PROMPT], request_id=3)])  # 99 and 4 to be drafted
    assert len(backend._caches) == 1
    drafter.release(3)
    assert drafter.num_held([3, *PROMPT, *PROMPT]) == 98


def test_a_chat_that_takes_more_than_half_of_the_room_begins_with_what_was_kept_all_the_same():
    drafter, backend = make()
    drafter.keep_contexts(100)
    drafter.propose([request(PROMPT * 2)])
    drafter.release(0)
    before = fed(backend)
    turn = [*PROMPT * 2, 1, 2]
    assert drafter.num_held(turn) == 98
    drafter.propose([request(turn, max_tokens=1, request_id=1)])
    assert fed(backend) - before == 2
    assert len(backend._caches) == 1


def test_what_is_kept_makes_room_for_trees():
    drafter, backend = make(tree_size=8)
    drafter.keep_contexts(70)
    for number in range(2):
        drafter.propose([request([number, *PROMPT[:31]], request_id=number)])
        drafter.release(number)
    assert len(backend._caches) == 2
    drafter.propose([replace(request([2, *PROMPT[:30]], request_id=2), max_tree_tokens=8)])  # 31 and 8 beside 32
    assert len(backend._caches) == 1


def test_what_has_ended_is_not_kept_beside_others_that_take_all_the_room():
    drafter, backend = make()
    drafter.keep_contexts(60)
    drafter.propose([request([number, *PROMPT], request_id=number) for number in range(2)])
    drafter.release(0)
    assert len(backend._caches) == 1


def test_what_a_window_has_left_behind_is_not_held():
    class Forgetful(SpyBackend):
        def crop(self, sequence_id, length):
            if self.length(sequence_id) - length > 4:
                raise UsageError("it has forgotten that")
            super().crop(sequence_id, length)

    backend = Forgetful(MODEL)
    drafter = DraftModelDrafter(backend, vocab_size=9, name="toy")
    drafter.keep_contexts(1000)
    drafter.propose([request(PROMPT)])
    drafter.release(0)
    assert drafter.num_held([*PROMPT[:45], 8, 8]) == 45
    assert drafter.num_held([*PROMPT[:40], 8, 8]) == 0
    assert len(backend._caches) == 1


def test_a_context_whose_reading_failed_is_not_kept():
    class Failing(SpyBackend):
        def forward(self, batch):
            if len(self.fed) == 1:
                raise MemoryError
            return super().forward(batch)

    backend = Failing(MODEL)
    drafter = DraftModelDrafter(backend, vocab_size=9, name="toy")
    drafter.keep_contexts(1000)
    long = [*PROMPT] * 4
    for _ in range(2):
        with pytest.raises(MemoryError) if backend.fed else nullcontext():
            drafter.propose([replace(request(long), max_read_tokens=60)])
    drafter.release(0)
    assert drafter.num_held(long) == 60
    drafter.keep_contexts(0)
    assert not backend._caches
