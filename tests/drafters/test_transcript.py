"""The draft reads what the target said, to the byte, however the context grew and was cut; and cheaply."""

import random

import pytest
from small_vocabularies import BYTES, byte_level, sentencepiece
from texts import HARD_TEXTS

from outrider.drafters.transcript import Transcript
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.models.pre_tokenizers import PRE_TOKENIZERS

CHAT = ["<|im_start|>", "<|im_end|>"]
QWEN2, GPT2 = PRE_TOKENIZERS["qwen2"], PRE_TOKENIZERS["gpt-2"]
WORDS = ["re", "ret", "retu", "retur", "return", "wo", "wor", "word", "th", "the", " return", " word", " the"]
TARGET = byte_level([*BYTES, "re", "tu", "rn", "the", " t", ":\n", "   ", "日本"], rule=QWEN2.build(), controls=CHAT)
LACKING = (b"\x06", b"\xf0", b"\xff")  # as SmolLM2 lacks some
DRAFTS = {
    "byte-level": byte_level([*BYTES, *WORDS, "\n\n", "  ", "日", "日本"], rule=GPT2.build(), controls=CHAT),
    "byte-level that normalises": byte_level([*BYTES, "é", "the"], rule=QWEN2.build(), nfc=True, controls=["<s>"]),
    "byte-level that lacks some bytes": byte_level(
        [byte for byte in BYTES if byte not in LACKING], rule=GPT2.build(), controls=CHAT
    ),
    "SentencePiece": sentencepiece(
        ["t", "h", "e", "th", "the", " the", " ", "a b"], controls=["<s>", *CHAT], bos="<s>"
    ),
}
EXACT = ["byte-level"]  # cut at every space, so that spelling the end anew is spelling everything anew


def vocabulary(name):
    draft = DRAFTS[name]
    return JointVocabulary(TARGET, TARGET.vocab_size, draft, draft.vocab_size)


def said(joint, ids):
    return b"".join(joint.draft.token_bytes[token_id] for token_id in ids)


def sayable(joint, ids):
    text = b"".join(map(joint.token_bytes, ids))
    return text.translate(None, bytes(byte for byte in range(256) if bytes((byte,)) not in joint.draft.ids))


def whole(joint, ids):
    transcript = Transcript(joint)
    transcript.extend(ids)
    return transcript.draft_ids


def random_ids(rng, joint):
    """Return some joint ids: of texts, control tokens, and any at all, which may add up to no text."""
    pool = ["the word returns", ":\n    return x", "日本語 ", "🙂", " a b", "   ", "e\u0301", "x" * 30]
    ids = []
    for _ in range(rng.randint(1, 6)):
        kind = rng.random()
        if kind < 0.15:
            ids.append(rng.choice([TARGET.vocab_size - 1, TARGET.vocab_size - 2]))
        elif kind < 0.3:
            ids.append(rng.randrange(joint.size))
        else:
            ids += joint.target.encode(rng.choice(pool).encode())
    return ids


@pytest.mark.parametrize("name", DRAFTS)
def test_after_any_growth_and_cut_the_draft_reads_the_same_text(name):
    joint = vocabulary(name)
    rng = random.Random(7)
    for _ in range(60):
        transcript, context, fed = Transcript(joint), [], []
        for _ in range(25):
            if context and rng.random() < 0.4:
                context = context[: rng.randint(max(0, len(context) - 12), len(context))]
                transcript.crop(len(context))
            new = random_ids(rng, joint)[: rng.randint(1, 9)]
            context += new
            transcript.extend(new)
            assert len(transcript) == len(context)
            assert said(joint, transcript.draft_ids) == sayable(joint, context)
            assert fed[: transcript.num_unchanged] == transcript.draft_ids[: transcript.num_unchanged]
            fed, transcript.num_unchanged = list(transcript.draft_ids), len(transcript.draft_ids)
            controls = [i for i in transcript.draft_ids if not joint.draft.token_bytes[i]]
            assert controls == [i for i in whole(joint, context) if not joint.draft.token_bytes[i]]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_draft_reads_text_cut_as_if_it_had_come_whole(name, size):
    joint = vocabulary(name)
    for text in [*HARD_TEXTS, "def f():\n    return the word\n\n    # the returns"]:
        if "\u00a0" in text:  # a space that is none of ASCII is taken for a letter
            continue
        ids = joint.target.encode(text.encode())
        transcript = Transcript(joint)
        for start in range(0, len(ids), size):
            transcript.extend(ids[start : start + size])
        assert transcript.draft_ids == DRAFTS[name].encode(text)


def test_a_word_drafted_in_parts_becomes_one_token_and_what_came_before_stays():
    joint = vocabulary("byte-level")
    transcript = Transcript(joint)
    transcript.extend(joint.target.encode(b"the word "))
    transcript.num_unchanged = len(transcript.draft_ids)
    transcript.extend(joint.target.encode(b"re"))
    transcript.extend(joint.target.encode(b"turn"))
    assert [joint.draft.token_bytes[i] for i in transcript.draft_ids] == [b"the", b" word", b" return"]
    assert transcript.num_unchanged == 2


def test_chat_markers_become_the_drafts_own():
    target = byte_level(BYTES, controls=["<start_of_turn>", "<end_of_turn>", "<bos>"], bos="<bos>")
    draft = byte_level(BYTES, controls=["<s>", "<|im_start|>", "<|im_end|>"], bos="<s>")
    joint = JointVocabulary(target, target.vocab_size, draft, draft.vocab_size)
    transcript = Transcript(joint)
    transcript.extend([258, 256, *b"hi", 257, 10])
    assert transcript.draft_ids == [256, 257, *b"hi", 258, 10]


def test_a_token_that_begins_every_text_is_not_said_twice():
    joint = JointVocabulary(*(byte_level(BYTES, controls=["<s>"], bos="<s>"), 257) * 2)
    transcript = Transcript(joint)
    transcript.extend([256, 97, 256])
    assert transcript.draft_ids == [256, 97, 256]


def test_a_context_costs_its_new_tokens_only(monkeypatch):
    joint = vocabulary("byte-level")
    encoded = []
    encode = joint.draft.encode
    monkeypatch.setattr(joint.draft, "encode", lambda data: encoded.append(len(data)) or encode(data))
    for text in (b"the word returns ", b"x" * 40, "日本語".encode()):
        transcript = Transcript(joint)
        ids = joint.target.encode(text * 200)
        encoded.clear()
        transcript.extend(ids)
        for token_id in ids[:500]:
            transcript.extend([token_id])
        assert max(encoded[1:]) <= 300
