"""Toy models in two minds, and an audit of them that takes seconds."""

from dataclasses import dataclass, replace
from functools import lru_cache

from toy_llm import TEMPLATE, toy_tokenizer

from outrider.audit.certificate import Claim
from outrider.audit.pair import Wish, audit_pair
from outrider.audit.sampled import Budget
from outrider.backends.toy import HashLM, ToyBackend
from outrider.engine.loading import Model, resolve_quietly
from outrider.models.chat_template import ChatTemplate
from outrider.sampling import SamplingParams

PROMPTS = [("one", "abc"), ("two", "hello hello")]


@dataclass(frozen=True)
class LeaningLM:
    """Likes a dozen tokens, others ever less; what it likes depends on the last two tokens and on a seed."""

    seed: int
    vocab_size: int = 259

    def weights(self, prefix):
        return _leaning(self.vocab_size, self.seed, tuple(prefix[-2:]))


@lru_cache(maxsize=1 << 14)
def _leaning(vocab_size, seed, last):
    return tuple(1 << (weight % 24) for weight in HashLM(vocab_size, seed, 10**6).weights(last))


@dataclass(frozen=True)
class MixedLM:
    """Likes what two models like."""

    one: LeaningLM
    other: LeaningLM

    @property
    def vocab_size(self):
        return self.one.vocab_size

    def weights(self, prefix):
        return tuple(map(sum, zip(self.one.weights(prefix), self.other.weights(prefix), strict=True)))


def model(lm, name):
    tokenizer = toy_tokenizer()
    template = ChatTemplate(TEMPLATE, bos_token="", eos_token="<|end|>")
    return Model(name, ToyBackend(lm, 120), tokenizer, template, context_length=120)


def toy_target():
    return model(MixedLM(LeaningLM(1), LeaningLM(2)), "target")


def toy_draft():
    return model(LeaningLM(1), "draft")


WISH = Wish(
    target="",
    draft=None,
    params=SamplingParams(temperature=1.0),
    lengths=(3, 1),
    batches=(1, 2),
    num_texts=2,
    text_tokens=6,
    budget=Budget(draws=3200, num_tokens=3, num_prefixes=2),
    claim=Claim(total_variation=0.2),
)


def audit(draft, **changes):
    wish = replace(
        WISH, target=toy_target(), draft=draft, **{key: value for key, value in changes.items() if key in FIELDS}
    )
    options = {key: value for key, value in changes.items() if key not in FIELDS}
    return audit_pair(wish, PROMPTS, command="outrider audit pair", now="now", resolver=resolve_quietly, **options)


FIELDS = {"rule", "params", "budget", "claim", "draft_tree", "lengths", "batches"}
