"""A draft with other tokens: honest laws token by token, the target's own cut of what it writes as a string."""

import numpy as np
import pytest
from small_vocabularies import BYTES, byte_level

from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.base import DraftRequest
from outrider.drafters.other_vocabulary import OtherVocabularyDrafter
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params
from outrider.verification import CoinSource, Purpose

TARGET = byte_level([*BYTES, "ab", "abc", " a"], controls=["<|im_end|>"], ends=["<|im_end|>"])
DRAFT = byte_level([*BYTES[::-1], "bc", "ca", " ab"], controls=["</s>"])
JOINT = JointVocabulary(TARGET, TARGET.vocab_size, DRAFT, DRAFT.vocab_size)
END = TARGET.vocab_size - 1
GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=1.0)


class Writer:
    """Writes a text in tokens of its own, then ends it; unsure of every token by as much as ``doubt``."""

    vocab_size = DRAFT.vocab_size

    def __init__(self, tokens, doubt=0.0):
        self.tokens = [*map(JOINT.draft.ids.get, tokens), DRAFT.vocab_size - 1]
        self.doubt = doubt

    def weights(self, prefix):
        said = bytes(JOINT.draft.token_bytes[prefix[0]])
        position = len(prefix) - 1 if said == b"x" else 0
        weights = [self.doubt / 260] * self.vocab_size
        weights[self.tokens[position] if position < len(self.tokens) else 0] = 1.0
        return tuple(weights)


def make(model, **options):
    return OtherVocabularyDrafter(ToyBackend(model), JOINT, name="stranger", **options)


def request(context, max_tokens=8, params=GREEDY, request_id=0):
    compiled = compile_params(params, Vocabulary(TARGET, TARGET.vocab_size))
    coins = CoinSource(3).at(len(context), Purpose.DRAFT)
    return DraftRequest(request_id, context, max_tokens, LawShaper(compiled, context), coins)


def ids(text):
    return JOINT.target.encode(text)


def test_a_string_is_cut_into_the_targets_tokens():
    drafter = make(Writer([b"a", b"bc", b"ca", b"b"]), stop_ids=[END])
    (draft,) = drafter.propose([request(ids(b"x"))])
    assert draft.probs is None
    assert draft.token_ids == (*ids(b"abccab"), END)
    assert [JOINT.target.token_bytes[i] for i in draft.token_ids[:4]] == [b"abc", b"c", b"ab", b""]
    assert draft.num_passes == 5  # one for each token of its own, the end included


@pytest.mark.parametrize("params", [GREEDY, SAMPLED, SamplingParams(temperature=1.0, seed=1)])
def test_strings_are_the_rule_and_ends_of_answers_end_them(params):
    drafter = make(Writer([b"ca", b"b"]), stop_ids=[END])
    (draft,) = drafter.propose([request(ids(b"x"), params=params)])
    assert (draft.token_ids, draft.probs) == ((*ids(b"cab"), END), None)


def test_a_control_token_that_the_target_has_no_part_for_ends_a_string_and_is_left_out():
    draft = byte_level([*BYTES], controls=["<file>"])
    joint = JointVocabulary(TARGET, TARGET.vocab_size, draft, draft.vocab_size)

    class Model:
        vocab_size = 257

        def weights(self, prefix):
            return tuple(float(n == (256 if prefix[-1] == 98 else prefix[-1] + 1)) for n in range(257))

    drafter = OtherVocabularyDrafter(ToyBackend(Model()), joint, name="stranger")
    assert drafter.propose([request(ids(b"a"))])[0].token_ids == (98,)
    assert drafter.propose([request(ids(b"b"), request_id=1)])[0].token_ids == ()


def test_a_draft_has_no_more_tokens_than_asked_for():
    (draft,) = make(Writer([b" ab", b"ca", b"bc"])).propose([request(ids(b"x"), max_tokens=3)])
    assert len(draft) == 3


def test_a_character_in_parts_is_put_together():
    parts = [bytes([byte]) for byte in "é🙂".encode()]
    (draft,) = make(Writer(parts), stop_ids=[END]).propose([request(ids(b"x"))])
    assert b"".join(map(JOINT.token_bytes, draft.token_ids)).decode() == "é🙂"


LIMITS = [
    {"allowed_token_ids": [*map(ord, "abc")]},
    {"logit_bias": {97: 5.0}},
    {"repetition_penalty": 1.2},
    {"bad_words": ["b"]},
    {"response_format": {"type": "regex", "regex": "[abc]+"}},
]


@pytest.mark.parametrize("limits", LIMITS)
def test_where_the_targets_choice_is_limited_so_is_the_drafts(limits):
    model = HashLM(DRAFT.vocab_size, seed=3)
    params = SamplingParams(temperature=1.0, **limits)
    (draft,) = make(model, stop_ids=[END]).propose([request(ids(b"x"), params=params)])
    assert draft.probs.shape == (len(draft), TARGET.vocab_size)
    np.testing.assert_allclose(np.asarray(draft.probs).sum(axis=1), 1.0)
    if "allowed_token_ids" in limits or "response_format" in limits:
        assert set(draft.token_ids) <= {*map(ord, "abc"), *ids(b"ab"), *ids(b"abc"), END}


def test_token_by_token_the_law_is_the_drafts_on_shared_tokens_and_the_one_drawn_from():
    model = HashLM(DRAFT.vocab_size, seed=5)
    (draft,) = make(model, strings=False).propose([request(ids(b"x"), max_tokens=3, params=SAMPLED)])
    coins = CoinSource(3).at(1, Purpose.DRAFT)
    for row, token_id in enumerate(draft.token_ids):
        text = b"x" + b"".join(map(JOINT.token_bytes, draft.token_ids[:row]))
        weights = np.zeros(TARGET.vocab_size)
        for draft_id, weight in enumerate(model.weights(JOINT.draft.encode(text))):
            if 0 <= JOINT.joint_ids[draft_id] < TARGET.vocab_size:
                weights[JOINT.joint_ids[draft_id]] += weight
        np.testing.assert_allclose(np.asarray(draft.probs[row]), weights / weights.sum(), rtol=1e-6)
        assert coins.draw(draft.probs[row]) == token_id


def test_doubt_ends_a_string_as_it_ends_any_draft():
    lengths = [
        len(make(Writer([b"c"] * 8, doubt), min_confidence=0.5).propose([request(ids(b"x"))])[0])
        for doubt in (0.0, 0.2, 0.5, 2.0)
    ]
    assert lengths == [8, 4, 2, 1]


def test_the_draft_follows_whatever_the_target_says():
    model = HashLM(DRAFT.vocab_size, seed=9)
    drafter, context = make(model), ids(b"x y")
    for more in (b"ab", b" a", b"", b"\xf0\x9f", b"\x99\x82", b"c\n"):
        drafter.propose([request(list(context))])
        context += ids(more) if more else [END]
    (draft,) = drafter.propose([request(list(context))])
    assert draft == make(model).propose([request(list(context))])[0]


def test_requests_of_both_kinds_share_a_round_and_release_frees_their_caches():
    model = HashLM(DRAFT.vocab_size, seed=9)
    limited = SamplingParams(temperature=1.0, allowed_token_ids=[*map(ord, "abc")])
    wishes = [(b"xab", GREEDY), (b"x", limited), (b"y", GREEDY)]
    backend = ToyBackend(model)
    drafter = OtherVocabularyDrafter(backend, JOINT, name="stranger")
    together = drafter.propose([request(ids(text), 3, params, n) for n, (text, params) in enumerate(wishes)])
    for (text, params), draft in zip(wishes, together, strict=True):
        assert draft.token_ids == make(model).propose([request(ids(text), 3, params)])[0].token_ids
    for request_id in (0, 1, 2, 2, 9):
        drafter.release(request_id)
    assert not backend._caches


@pytest.mark.parametrize("strings", [True, False])
def test_a_broken_draft_model_costs_its_drafts(strings):
    class Broken(ToyBackend):
        def forward(self, batch):
            return np.full_like(super().forward(batch), np.nan)

    drafter = OtherVocabularyDrafter(Broken(HashLM(DRAFT.vocab_size, 1)), JOINT, name="broken", strings=strings)
    (draft,) = drafter.propose([request(ids(b"x"))])
    assert draft.token_ids == ()
    assert "nan" in draft.problem
