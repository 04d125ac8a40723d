"""SmolLM2's vocabulary, as a draft's and as a target's, beside a small one: any bytes, in any order, to the byte."""

import os
import random

import pytest
from small_vocabularies import BYTES, byte_level
from texts import HARD_TEXTS

from outrider.drafters.transcript import Transcript
from outrider.models.joint_vocabulary import JointVocabulary
from outrider.models.open import open_model
from outrider.models.pre_tokenizers import PRE_TOKENIZERS
from outrider.models.resolve import resolve

SMALL = byte_level(
    [*BYTES, "th", "the", "in", " a", "   ", ":\n", "日", "日本"],
    rule=PRE_TOKENIZERS["qwen2"].build(),
    controls=["<|im_start|>", "<|im_end|>", "<tool>"],
)
POOL = [
    *HARD_TEXTS,
    "👨‍👩‍👧‍👦 🏳️‍🌈",
    "\n\n    return",
    "\r\n\t",
    "   ",
    "日本語",
    "e\u0301",
    "\u3000\u00a0",
    "<|im_end|>",
]


@pytest.fixture(scope="module")
def smollm2():
    return open_model(resolve("smollm2-135m", os.environ)).tokenizer


@pytest.fixture(params=["draft", "target"])
def joint(request, smollm2):
    target, draft = (SMALL, smollm2) if request.param == "draft" else (smollm2, SMALL)
    return JointVocabulary(target, target.num_tokens, draft, draft.num_tokens)


def some_ids(rng, joint):
    kind = rng.random()
    if kind < 0.1:
        return [rng.choice(sorted(joint.target.tokenizer.special_ids))]
    if kind < 0.4:
        return [rng.randrange(joint.size) for _ in range(rng.randint(1, 4))]
    if kind < 0.6:
        return joint.target.encode(rng.randbytes(rng.randint(1, 8)))
    return joint.target.encode("".join(rng.choices(POOL, k=rng.randint(1, 3))).encode())


def test_the_draft_reads_what_the_target_said(joint):
    rng = random.Random(5)
    lacking = bytes(byte for byte in range(256) if bytes((byte,)) not in joint.draft.ids)
    for _ in range(150):
        transcript, context, fed = Transcript(joint), [], []
        for _ in range(12):
            if rng.random() < 0.4:
                context = context[: rng.randint(max(0, len(context) - 10), len(context))]
                transcript.crop(len(context))
            new = some_ids(rng, joint)
            context += new
            transcript.extend(new)
            read = b"".join(joint.draft.token_bytes[token_id] for token_id in transcript.draft_ids)
            said = b"".join(map(joint.token_bytes, context))
            assert read.translate(None, lacking) == said.translate(None, lacking)
            assert fed[: transcript.num_unchanged] == transcript.draft_ids[: transcript.num_unchanged]
            fed, transcript.num_unchanged = list(transcript.draft_ids), len(transcript.draft_ids)


def test_what_the_draft_writes_comes_out_in_the_targets_tokens(joint):
    rng = random.Random(6)
    lacking = bytes(byte for byte in range(256) if bytes((byte,)) not in joint.target.ids)
    for _ in range(500):
        written = b"".join(joint.token_bytes(rng.randrange(joint.size)) for _ in range(rng.randint(1, 8)))
        cut = b"".join(joint.target.token_bytes[token_id] for token_id in joint.target.encode(written))
        assert cut.translate(None, lacking) == written.translate(None, lacking)


def test_text_is_read_as_the_draft_would_cut_it(smollm2):
    joint = JointVocabulary(SMALL, SMALL.num_tokens, smollm2, smollm2.num_tokens)
    text = "def f(x):\n    return [n ** 2 for n in range(10)]\n\n\nThe naïve approach — it isn't 日本語 fast.\n" * 5
    transcript = Transcript(joint)
    for token_id in joint.target.encode(text.encode()):
        transcript.extend([token_id])
    assert transcript.draft_ids == smollm2.encode(text)
