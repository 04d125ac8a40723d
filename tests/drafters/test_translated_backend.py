"""A draft spoken to in the target's tokens: its logits are those of its own reading of the text, summed by bytes."""

import numpy as np
import pytest
from small_vocabularies import BYTES, byte_level, sentencepiece

from outrider.backends.base import Rows
from outrider.backends.prefill import PIECE
from outrider.backends.toy import HashLM, ToyBackend
from outrider.drafters.translated_backend import OwnTokensBackend, TranslatedBackend
from outrider.errors import UsageError
from outrider.models.joint_vocabulary import JointVocabulary

TARGET = byte_level(["a", "b", "ab", "c", " "], controls=["<|im_end|>"])
DRAFT = byte_level(["b", "a", " ", "ba", "aa", "d"], controls=["<|im_end|>", "<other>"])
MODEL = HashLM(DRAFT.vocab_size, seed=4)
JOINT = JointVocabulary(TARGET, TARGET.vocab_size, DRAFT, DRAFT.vocab_size)


def make(joint=JOINT, model=MODEL, max_length=4096):
    inner = ToyBackend(model, max_length)
    return TranslatedBackend(inner, joint), inner


def expected(draft_ids, joint=JOINT, model=MODEL):
    """The law over joint ids, before renormalising, by adding up."""
    weights = np.zeros(joint.size)
    for draft_id, weight in enumerate(model.weights(draft_ids)):
        if joint.joint_ids[draft_id] >= 0:
            weights[joint.joint_ids[draft_id]] += weight
    return weights


def spelled(text):
    return JOINT.draft.encode(text)


def check(row, draft_ids, **options):
    np.testing.assert_allclose(np.exp(row.astype(float)), expected(draft_ids, **options), rtol=1e-6)


def test_a_row_is_what_the_draft_says_of_the_same_text():
    backend, inner = make()
    sequence_id = backend.open_sequence()
    (row,) = backend.forward([Rows(sequence_id, [0, 1, 4, 0])])  # "ab a"
    check(row, spelled(b"ab a"))
    (row,) = backend.forward([Rows(sequence_id, [0])])  # now "aa", which is one of its tokens
    check(row, spelled(b"ab aa"))
    assert inner.length(1) == len(spelled(b"ab aa")) == 4
    (row,) = backend.forward([Rows(sequence_id, [5])])
    check(row, [*spelled(b"ab aa"), 6])


def test_a_crop_forgets_and_what_is_said_again_is_not_fed_again():
    backend, inner = make()
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [0, 4, 1, 4, 0])])
    backend.crop(sequence_id, 2)
    assert backend.length(sequence_id) == 2
    fed = []
    forward = inner.forward
    inner.forward = lambda batch: fed.extend(rows.token_ids for rows in batch) or forward(batch)
    (row,) = backend.forward([Rows(sequence_id, [1, 4, 1])])
    check(row, spelled(b"a b b"))
    assert fed == [[0]]


@pytest.mark.parametrize("num_logits", [0, 1, 2, 4])
def test_rows_are_the_same_in_any_number_and_company(num_logits):
    backend, _ = make()
    alone, other = backend.open_sequence(), backend.open_sequence()
    logits = backend.forward([Rows(other, [1]), Rows(alone, [0, 4, 0, 0], num_logits)])
    assert len(logits) == 1 + num_logits
    check(logits[0], spelled(b"b"))
    for row, text in zip(logits[1:], [b"a", b"a ", b"a a", b"a aa"][4 - num_logits :], strict=True):
        check(row, spelled(text))


def test_tokens_of_the_same_bytes_add_up():
    draft = sentencepiece(["a", "b"])
    joint = JointVocabulary(TARGET, TARGET.vocab_size, draft, draft.vocab_size)
    model = HashLM(draft.vocab_size, seed=1)
    backend, _ = make(joint, model)
    row = backend.forward([Rows(backend.open_sequence(), [0])])[0]
    check(row, [0], joint=joint, model=model)
    weights = model.weights([0])
    assert np.exp(row[0]) == pytest.approx(weights[0] + weights[2 + ord("a")])


def test_what_the_draft_cannot_say_has_no_logit_and_what_it_alone_can_say_has_one():
    backend, _ = make()
    row = backend.forward([Rows(backend.open_sequence(), [0])])[0]
    assert np.flatnonzero(row == -np.inf).tolist() == [2, 3]
    assert backend.vocab_size == len(row) == TARGET.vocab_size + 3


def test_a_context_that_says_nothing_to_the_draft_gets_no_logits():
    joint = JointVocabulary(TARGET, TARGET.vocab_size, byte_level(["a"]), 1)
    backend, _ = make(joint, HashLM(1))
    sequence_id = backend.open_sequence()
    assert (backend.forward([Rows(sequence_id, [5])]) == -np.inf).all()
    assert np.isfinite(backend.forward([Rows(sequence_id, [0])])[0, 0])
    assert np.isfinite(backend.forward([Rows(sequence_id, [5])])[0, 0])  # read again, to say what follows


def test_a_context_longer_than_the_drafts_is_read_from_its_end():
    backend, inner = make(max_length=8)
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [1] * 20)])
    assert inner.length(1) == 4
    for length in range(21, 26):
        (row,) = backend.forward([Rows(sequence_id, [1])])
        assert inner.length(1) == (length - 16 if length < 25 else 4)
        check(row, [0] * inner.length(1))
    backend.crop(sequence_id, 3)
    check(backend.forward([Rows(sequence_id, [0])])[0], [0, 0, 3])


def test_a_context_that_fits_again_is_read_from_its_beginning():
    backend, _ = make(max_length=8)
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [0, 4] * 10)])
    backend.crop(sequence_id, 4)
    (row,) = backend.forward([Rows(sequence_id, [1, 4, 1])])
    check(row, spelled(b"a a b b"))


def test_what_the_drafts_window_has_left_behind_is_read_again():
    backend, inner = make()
    crop = inner.crop

    def crop_a_little(sequence_id, length):
        if length and inner.length(sequence_id) - length > 5:
            raise UsageError("it has forgotten what lies before")
        crop(sequence_id, length)

    inner.crop = crop_a_little
    sequence_id = backend.open_sequence()
    backend.forward([Rows(sequence_id, [0, 4] * 10)])
    backend.crop(sequence_id, 4)
    (row,) = backend.forward([Rows(sequence_id, [1, 4, 1])])
    check(row, spelled(b"a a b b"))


def test_a_long_prompt_goes_in_pieces():
    backend, inner = make()
    sizes = []
    forward = inner.forward
    inner.forward = lambda batch: sizes.append(len(batch[0].token_ids)) or forward(batch)
    backend.forward([Rows(backend.open_sequence(), [3, 1] * (PIECE + 5))])
    assert max(sizes) <= PIECE


def test_a_fork_goes_its_own_way():
    backend, _ = make()
    one = backend.open_sequence()
    backend.forward([Rows(one, [0, 4])])
    other = backend.fork(one)
    logits = backend.forward([Rows(one, [0, 0]), Rows(other, [1])])
    check(logits[0], spelled(b"a aa"))
    check(logits[1], spelled(b"a b"))
    backend.close_sequence(one)
    check(backend.forward([Rows(other, [1])])[0], spelled(b"a bb"))


def test_what_breaks_the_contract_is_refused():
    backend, inner = make()
    sequence_id = backend.open_sequence()
    for batch in (
        [Rows(sequence_id, [])],
        [Rows(sequence_id, [99])],
        [Rows(sequence_id, [0], num_logits=2)],
        [Rows(sequence_id, [0]), Rows(sequence_id, [0])],
        [Rows(sequence_id, [0], parents=[-1])],
        [Rows(77, [0])],
    ):
        with pytest.raises(UsageError):
            backend.forward(batch)
    for length in (-1, 1):
        with pytest.raises(UsageError):
            backend.crop(sequence_id, length)
    with pytest.raises(UsageError):
        backend.keep_path(sequence_id, [])
    backend.close_sequence(sequence_id)
    assert not inner._caches
    with pytest.raises(UsageError):
        backend.length(sequence_id)


def test_bytes_vocabularies_of_every_order_say_the_same():
    backward = byte_level(BYTES[::-1])
    joint = JointVocabulary(byte_level(BYTES), 256, backward, 256)
    model = HashLM(256, seed=2)
    backend, _ = make(joint, model)
    row = backend.forward([Rows(backend.open_sequence(), list(b"hi"))])[0]
    assert np.exp(row[::-1].astype(float)) == pytest.approx(model.weights([255 - byte for byte in b"hi"]))


def test_a_pass_that_failed_is_made_up_for():
    backend, inner = make()
    sequence_id = backend.open_sequence()
    forward = inner.forward

    def fail(batch):
        raise MemoryError

    backend.forward([Rows(sequence_id, [0, 4])])
    inner.forward = fail
    with pytest.raises(MemoryError):
        backend.forward([Rows(sequence_id, [1, 4])])
    inner.forward = forward
    backend.crop(sequence_id, 2)
    check(backend.forward([Rows(sequence_id, [1, 4, 0])])[0], spelled(b"a b a"))


def test_in_its_own_numbering_the_draft_says_its_own_tokens_and_reads_both():
    inner = ToyBackend(MODEL)
    backend = OwnTokensBackend(inner, JOINT)
    sequence_id = backend.open_sequence()
    offset = DRAFT.vocab_size
    (row,) = backend.forward([Rows(sequence_id, [offset, offset + 4, offset + 1, 4])])  # "a b", then its own "aa"
    assert np.exp(row) == pytest.approx(MODEL.weights(spelled(b"a baa")), rel=1e-6)
    backend.crop(sequence_id, 3)
    (row,) = backend.forward([Rows(sequence_id, [offset + 5])])
    assert np.exp(row) == pytest.approx(MODEL.weights([*spelled(b"a b"), 6]), rel=1e-6)
    assert backend.vocab_size == DRAFT.vocab_size + TARGET.vocab_size


def test_in_company_of_a_context_that_says_nothing_each_gets_its_own_row():
    joint = JointVocabulary(TARGET, TARGET.vocab_size, byte_level(["a", "b"]), 2)
    for kind in (TranslatedBackend, OwnTokensBackend):
        model = HashLM(2, seed=3)
        backend = kind(ToyBackend(model), joint)
        offset = 2 if kind is OwnTokensBackend else 0
        silent, other = backend.open_sequence(), backend.open_sequence()
        logits = backend.forward([Rows(silent, [offset + 5]), Rows(other, [offset])])
        assert (logits[0] == -np.inf).all()
        assert np.exp(logits[1, :2]) == pytest.approx(model.weights([0]))
