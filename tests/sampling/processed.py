"""Exact laws of whole answers with every setting on, and the same laws written down independently.

Logits are multiples of 1/4 and settings are powers of two or their multiples, so that float32 arithmetic on them is
exact. The laws themselves are exponentials: they are turned into fractions and carried on exactly from there, and what
two ways of computing an exponential differ by is all that is left, some 1e-16.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from hashlib import blake2b
from math import exp, log

import numpy as np

from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params, greedy_token_ids, target_probs
from outrider.types import Draft, TreeDraft
from outrider.verification import verify_block, verify_point_mass, verify_token, verify_tree
from outrider.verification.exact import emitted_law, sequence_law

VOCAB_SIZE = 4
PROMPT = (0, 3, 0)
END_IDS = (1,)
ALLOWED = (0, 2)  # what the restricted draft says


class Letters:
    """Token 0 is the letter a, and so on; a space is no token."""

    eos_ids = END_IDS
    special_ids = END_IDS
    pieces = ("a", "<end>", "c", "d")

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id].encode()

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return [ord(character) - 97 for character in text if character != " "]


def quarter_logits(seed: int) -> Callable[[Sequence[int]], list[float]]:
    """Return a model: logits from -1 to 1.25 that depend on everything before."""

    def logits(prefix: Sequence[int]) -> list[float]:
        key = blake2b(repr((seed, *map(int, prefix))).encode(), digest_size=VOCAB_SIZE).digest()
        return [(byte % 10 - 4) / 4 for byte in key]

    return logits


TARGET, DRAFT = quarter_logits(1), quarter_logits(2)


def params(**settings) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 9, **settings})


SETTINGS = {
    "none": params(),
    "repetition_penalty": params(repetition_penalty=2.0),
    "repetition_penalty below one": params(repetition_penalty=0.5),
    "presence_penalty": params(presence_penalty=1.5),
    "frequency_penalty": params(frequency_penalty=0.75),
    "negative penalties": params(frequency_penalty=-0.5, presence_penalty=-1.0),
    "logit_bias": params(logit_bias={0: 1.5, 2: -2.0, 3: -100}),
    "bad_words": params(bad_words=("ab", "cc", "d", "bab")),
    "allowed_token_ids": params(allowed_token_ids=(3, 0, 2)),
    "min_tokens": params(min_tokens=2),
    "min_tokens and stop_token_ids": params(min_tokens=2, stop_token_ids=(3,)),
    "limits": params(temperature=0.5, min_p=0.05, top_k=3, top_p=0.875, typical_p=0.75),
    "limits on penalised logits": params(top_k=2, repetition_penalty=2.0, frequency_penalty=0.75),
    "limits on allowed tokens": params(top_k=1, allowed_token_ids=(1, 2), frequency_penalty=2.0),
    "everything": params(
        temperature=2.0,
        top_k=3,
        top_p=0.96875,
        min_p=0.03125,
        typical_p=0.9375,
        repetition_penalty=2.0,
        presence_penalty=0.5,
        frequency_penalty=0.25,
        logit_bias={1: 2.0, 2: -0.5},
        bad_words=("cb", "dd"),
        allowed_token_ids=(0, 1, 2, 3),
        min_tokens=2,
        stop_token_ids=(3,),
    ),
    "response_format": params(response_format={"type": "regex", "regex": "a(dd)?|cac[da]?|cd"}),
    "response_format and penalties": params(
        response_format={"type": "grammar", "grammar": 'start: ("a" | "c" | "d")*'}, frequency_penalty=0.5
    ),
    "greedy": params(temperature=0.0, repetition_penalty=2.0, frequency_penalty=0.75, logit_bias={1: 0.5}),
}


# What the regular expression above allows; the grammar after it allows everything.
WORDS = ("a", "add", "cac", "cacd", "caca", "cd")


# --- the law, one token at a time, in plain Python


def reference_logits(logits: Sequence[float], prompt, output, one: SamplingParams) -> list[float]:
    """What the settings say, token by token."""
    output = list(output)
    shaped = []
    for token_id, logit in enumerate(logits):
        value = logit + one.logit_bias.get(token_id, 0.0)
        if one.repetition_penalty and token_id in [*prompt, *output]:
            value = value / one.repetition_penalty if value > 0 else value * one.repetition_penalty
        if token_id in output:
            value -= (one.presence_penalty or 0) + (one.frequency_penalty or 0) * output.count(token_id)
        is_out = one.allowed_token_ids is not None and token_id not in one.allowed_token_ids
        for word in one.bad_words:
            text = "".join(chr(97 + x) for x in output) + chr(97 + token_id)
            is_out |= text.endswith(word)
        if (one.response_format or {}).get("type") == "regex":
            is_out |= not may_follow(token_id, [*output])
        is_out |= len(output) < one.min_tokens and token_id in (*END_IDS, *one.stop_token_ids)
        shaped.append(-np.inf if is_out else value)
    return shaped


def may_follow(token_id, output) -> bool:
    """Whether a token may come next; anything may once the answer has ended or gone astray."""
    text = "".join(chr(97 + x) for x in output)
    if set(END_IDS) & set(output) or not any(word.startswith(text) for word in WORDS):
        return True
    if token_id in END_IDS:
        return text in WORDS
    return any(word.startswith(text + chr(97 + token_id)) for word in WORDS)


def reference_law(one: SamplingParams, model=TARGET, prompt=PROMPT):
    """Return the law of the next token given prompt and output, fractions of what ``math.exp`` gives."""

    def law(prefix):
        shaped = reference_logits(model(prefix), prompt, prefix[len(prompt) :], one)
        order = sorted(range(VOCAB_SIZE), key=lambda i: (-shaped[i], i))
        if one.is_greedy:
            return np.array([Fraction(i == order[0]) for i in range(VOCAB_SIZE)])
        weights = [exp((value - max(shaped)) / one.temperature) for value in shaped]
        kept = [i for i in order if weights[i] > 0 and weights[i] >= (one.min_p or 0)][: one.top_k]
        kept = fewest(kept, weights, one.top_p)
        total = sum(weights[i] for i in kept)
        surprises = {i: -log(weights[i] / total) for i in kept}
        entropy = sum(weights[i] / total * surprises[i] for i in kept)
        if one.typical_p is not None:
            kept = sorted(kept, key=lambda i: abs(surprises[i] - entropy))
            kept = fewest(kept, weights, one.typical_p)
        exact = [Fraction(weights[i]) if i in kept else Fraction(0) for i in range(VOCAB_SIZE)]
        return np.array([weight / sum(exact) for weight in exact])

    return law


def fewest(kept, weights, share):
    total, mass = sum(weights[i] for i in kept), 0.0
    for count, token_id in enumerate(kept, start=1):
        mass += weights[token_id]
        if share is not None and mass >= share * total:
            return kept[:count]
    return kept


# --- rounds with a shaper


def make_shaper(one: SamplingParams, kind=LawShaper, prompt=PROMPT) -> LawShaper:
    compiled = compile_params(one, Vocabulary(Letters(), VOCAB_SIZE))
    return kind(compiled, prompt)


def rows(model, prefix, draft_ids) -> np.ndarray:
    prefixes = [(*prefix, *draft_ids[:count]) for count in range(len(draft_ids) + 1)]
    return np.array([model(one) for one in prefixes], dtype=np.float32)


def fractions(probs) -> np.ndarray:
    exact = np.array([[Fraction(float(value)) for value in row] for row in probs])
    return exact / exact.sum(axis=1, keepdims=True)


def dense(one, *, shapes=True, allowed=(0, 1, 2, 3), tells=True):
    """Draw from the draft model, with or without the settings, or from a part of the vocabulary."""
    others = [i for i in range(VOCAB_SIZE) if i not in allowed]

    @cache
    def law(prefix, draft_ids):
        logits = rows(DRAFT, (*prefix, *draft_ids), ())
        logits[:, others] = -np.inf
        if shapes:
            logits = advanced(one, LawShaper, prefix).shape(logits, draft_ids)
        return None if logits.max() == -np.inf else fractions(target_probs(logits, one))[0]

    def propose(prefix, count, coins):
        token_ids, laws = (), []
        while len(token_ids) < count and (one_law := law(prefix, token_ids)) is not None:
            laws.append(one_law)
            token_ids = (*token_ids, coins.draw(one_law))
        return Draft(token_ids, np.array(laws).reshape(len(laws), VOCAB_SIZE) if tells else None)

    propose.law = law
    return propose


def argmax(one):
    def propose(prefix, count, coins):
        shaper, token_ids = advanced(one, LawShaper, prefix), ()
        for _ in range(count):
            shaped = shaper.shape(rows(DRAFT, (*prefix, *token_ids), ()), token_ids)
            token_ids = (*token_ids, int(greedy_token_ids(shaped)[0]))
        return Draft(token_ids)

    return propose


def constant(*token_ids):
    return lambda one: lambda prefix, count, coins: Draft(token_ids[:count])


def tree(one, *, allowed=(0, 1, 2, 3), is_drawn=(True, True)):
    """Two candidates for the next token and one after the first of them, drawn or likeliest by level."""
    laws = dense(one, allowed=allowed).law

    def propose(prefix, count, coins):
        token_ids, parents, probs = [], [], [None]
        for level, (parent, width) in enumerate([(-1, 2), (0, 1)][:count]):
            law = laws(prefix, tuple(token_ids[:level])) if parent < len(token_ids) else None
            left = None if law is None else law.copy()
            for _ in range(width):
                if left is None or left.sum() == 0:
                    break
                token_ids.append(coins.draw(left) if is_drawn[level] else int(np.argmax(left)))
                parents.append(parent)
                left[token_ids[-1]] = 0
                probs[parent + 1] = law if is_drawn[level] else None
                probs.append(None)
        return TreeDraft(tuple(token_ids), tuple(parents), tuple(probs))

    return propose


RULES = (verify_token, verify_block)
DRAFTERS = {
    "dense, shaped": (dense, RULES),
    "dense, not shaped": (partial(dense, shapes=False), RULES),
    "restricted, shaped": (partial(dense, allowed=ALLOWED), RULES),
    "padded, shaped": (partial(dense, allowed=(0, 1, 2)), RULES),
    "tree, drawn": (tree, (verify_tree,)),
    "tree, drawn, restricted": (partial(tree, allowed=ALLOWED), (verify_tree,)),
    "tree, drawn, padded": (partial(tree, allowed=(0, 1, 2)), (verify_tree,)),
    "tree, likeliest": (partial(tree, is_drawn=(False, False)), (verify_tree,)),
    "tree, drawn, then likeliest": (partial(tree, is_drawn=(True, False)), (verify_tree,)),
    "argmax, shaped": (argmax, (verify_point_mass,)),
    "constant": (constant(2, 2, 1), (verify_point_mass,)),
    "drawn, its law kept back": (partial(dense, tells=False), (verify_point_mass,)),
    "none": (constant(), (verify_point_mass,)),
}


def processed_round(one, drafter, rule, *, num_tokens, num_draft_tokens=2, kind=LawShaper):
    """Return the round that emits the next tokens of an answer of ``num_tokens`` tokens, its shaper fresh each time."""
    known = {}  # what shaping gives, since most branches of a round draw the same draft

    def target_law(prefix, draft):
        """Return all rows, those of a tree each with the path that leads to it."""
        paths = tuple(draft.before(row) for row in range(len(draft) + 1))
        if (prefix, paths) not in known:
            shaper = advanced(one, kind, prefix)
            if isinstance(draft, Draft):
                shaped = shaper.shape(rows(TARGET, prefix, draft.token_ids), draft.token_ids)
            else:
                shaped = np.concatenate([shaper.shape(rows(TARGET, prefix, path)[-1:], path) for path in paths])
            known[prefix, paths] = fractions(target_probs(shaped, one))
        return known[prefix, paths]

    def emit(prefix, coins):
        room = min(num_draft_tokens, len(PROMPT) + num_tokens - len(prefix) - 1)
        draft = drafter(prefix, room, coins)
        result = rule(draft, target_law(prefix, draft), coins)
        return (*(draft.token_ids[node] for node in result.path), result.next_token_id)

    return emit


def advanced(one, kind, prefix) -> LawShaper:
    shaper = make_shaper(one, kind)
    for token_id in prefix[len(PROMPT) :]:
        shaper.advance(token_id)
    return shaper


def answer_law(one, make_drafter, rule, *, num_tokens, num_draft_tokens=2, kind=LawShaper):
    """Return the exact law of answers of ``num_tokens`` tokens, each by as many rounds as it takes."""
    emit = processed_round(
        one, make_drafter(one), rule, num_tokens=num_tokens, num_draft_tokens=num_draft_tokens, kind=kind
    )
    return emitted_law(emit, num_tokens, PROMPT)


def wanted_law(one, num_tokens):
    return sequence_law(reference_law(one), num_tokens, PROMPT)
