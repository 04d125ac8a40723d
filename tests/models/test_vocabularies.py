"""How two vocabularies relate, in every case there is, and one numbering for both."""

import numpy as np
import pytest
from small_vocabularies import BYTES, byte_level, sentencepiece

from outrider.models.joint_vocabulary import JointVocabulary
from outrider.models.vocabularies import Relation, compare_vocabularies

WORDS = [*BYTES, *(f" word{n}" for n in range(300))]
BASE = byte_level(WORDS, controls=["<|im_start|>", "<|im_end|>"], ends=["<|im_end|>"])


def relation(target, draft):
    return compare_vocabularies(target, draft).relation


def test_equal_ones_are_identical():
    again = byte_level(WORDS, controls=["<|im_start|>", "<|im_end|>"])
    comparison = compare_vocabularies(BASE, again)
    assert (comparison.relation, comparison.differing_ids) == (Relation.IDENTICAL, ())
    assert comparison.works


def test_padding_on_either_side_is_padding():
    padded = byte_level(WORDS, controls=["<|im_start|>", "<|im_end|>"], unused=7)
    assert relation(BASE, padded) is relation(padded, BASE) is Relation.PADDED


def test_a_few_other_ids_are_named_with_what_they_say():
    named = byte_level(WORDS, controls=["<|begin|>", "<|im_end|>", "<|more|>"])
    comparison = compare_vocabularies(BASE, named)
    assert comparison.relation is Relation.NEARLY_IDENTICAL
    first, last = len(WORDS), len(WORDS) + 2
    found = [(one.token_id, one.target, one.draft) for one in comparison.differing_ids]
    assert found == [(first, "<|im_start|>", "<|begin|>"), (last, None, "<|more|>")]


def test_the_same_tokens_in_another_order_overlap_in_all():
    comparison = compare_vocabularies(BASE, byte_level(WORDS[::-1], controls=["<|im_start|>", "<|im_end|>"]))
    assert comparison.relation is Relation.OVERLAPPING
    assert comparison.shared_in_sample == 1.0


def test_other_spellings_overlap_by_their_bytes():
    spaced = sentencepiece([*(f" word{n}" for n in range(300)), "a"])
    assert relation(BASE, spaced) is Relation.OVERLAPPING


def test_strangers_are_unrelated_and_the_reason_is_given():
    proteins = byte_level([*"ACDEFGHIKLMNPQRSTVWY"], controls=["<cls>", "<eos>"])
    comparison = compare_vocabularies(BASE, proteins)
    assert comparison.relation is Relation.UNRELATED
    assert not comparison.works
    assert "of the target's tokens of a sample text are the draft's" in comparison.consequence
    assert relation(byte_level(["x"]), byte_level(["y"])) is Relation.UNRELATED


def test_every_relation_has_a_consequence():
    for one in (BASE, byte_level(WORDS, unused=1), sentencepiece(["a"])):
        assert compare_vocabularies(BASE, one).consequence


def joint(target, draft):
    return JointVocabulary(target, target.vocab_size, draft, draft.vocab_size)


def test_joint_ids_are_the_targets_then_what_it_lacks():
    vocabulary = joint(byte_level(["a", "b", "ab"]), byte_level(["b", "ba", "a", "c"]))
    assert vocabulary.joint_ids.tolist() == [1, 3, 0, 4]
    assert [vocabulary.token_bytes(i) for i in range(vocabulary.size)] == [b"a", b"b", b"ab", b"ba", b"c"]
    assert vocabulary.shared_ids.tolist() == [0, 1]
    assert vocabulary.joint_ids.dtype == np.intp


def test_tokens_of_the_same_bytes_have_one_id():
    vocabulary = joint(byte_level(["b", "a"]), sentencepiece(["a", "b"]))
    ids = vocabulary.joint_ids
    assert ids[0] == ids[2 + ord("a")] == 1
    assert ids[1] == ids[2 + ord("b")] == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (["<|im_start|>", "<|im_end|>"], ["<|im_end|>", "<|im_start|>"], {0: 1, 1: 0}),
        (["<start_of_turn>", "<end_of_turn>", "<bos>"], ["<|im_start|>", "<|im_end|>"], {0: 0, 1: 1}),
        (["<|endoftext|>", "<|im_end|>"], ["</s>", "<s>"], {0: 0, 1: 0}),
        (["</s>"], ["<|endoftext|>", "<|im_end|>"], {0: 1}),
        (["<tool>"], ["<other>"], {}),
    ],
)
def test_control_tokens_are_matched_by_name_or_by_their_part_in_a_chat(ours, theirs, expected):
    vocabulary = joint(byte_level(["a"], controls=ours), byte_level(["a"], controls=theirs))
    found = {i: vocabulary.draft_control(i + 1) for i in range(len(ours))}
    assert {i: control - 1 for i, control in found.items() if control is not None} == expected


def test_a_control_token_is_never_the_text_it_is_spelled_with():
    vocabulary = joint(byte_level(["a", "<s>"]), byte_level(["a"], controls=["<s>"]))
    assert vocabulary.joint_ids.tolist() == [0, -1]
