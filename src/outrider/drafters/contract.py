"""Checks that any drafter can be put through, of this project or of another; see docs/add_a_drafter.md.

    from outrider.drafters.contract import check_drafter

    def test_my_drafter():
        check_drafter(MyDrafter, vocab_size=4)

A drafter may be wrong in any way. It must keep its limits, be honest about what it drew, decide nothing by what it
drew, and keep requests apart. The law of what is emitted is computed by enumerating every random decision, not
estimated: so give it a small vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from outrider.backends.toy import HashLM, exact_probs
from outrider.drafters.base import Drafter, DraftRequest
from outrider.drafters.check import checked
from outrider.sampling import LawShaper, SamplingParams, Vocabulary, compile_params
from outrider.types import Coins, Draft, Outcome, Probs, Proposal, TreeDraft, TreeResult, VerificationResult, Weights
from outrider.verification import CoinSource, Purpose, verify_block, verify_point_mass, verify_tree
from outrider.verification.exact import emitted_law, sequence_law, total_variation

_PARAMS = {"greedy": SamplingParams(), "sampled": SamplingParams(temperature=1.0)}
_LARGEST_ENUMERATED = 6
_NUM_TOKENS = 3  # of the law that is enumerated


def check_drafter(make: Callable[[], Drafter], *, vocab_size: int, learns: bool = False) -> None:
    """Check that a drafter keeps its contract.

    Args:
        make: Returns a new drafter, with nothing in its memory.
        vocab_size: Of the target that it drafts for. Up to 6, the law of what is emitted is enumerated, too.
        learns: Whether it learns from all requests, so that drafts may depend on others than their own. Its law is
            checked all the same.

    Raises:
        AssertionError: It does not; the message says what and when.
    """
    for name, params in _PARAMS.items():
        _check_drafts(make, vocab_size, params, f"for a {name} request")
        if not learns:
            _check_requests_apart(make, vocab_size, params, f"for a {name} request")
    if not learns:
        _check_memory(make, vocab_size)
    if vocab_size <= _LARGEST_ENUMERATED:
        _check_law(make, vocab_size)


def _require(is_kept: bool, problem: str) -> None:  # noqa: FBT001 - as in an assert
    if not is_kept:
        raise AssertionError(problem)


def _contexts(vocab_size: int) -> list[list[int]]:
    """Return the contexts of a request as it grows, by one token or by several."""
    random = Random(3)  # noqa: S311 - always the same
    contexts = [[1 % vocab_size, 0, 1 % vocab_size]]
    for _ in range(8):
        contexts.append([*contexts[-1], *(random.randrange(vocab_size) for _ in range(random.randrange(1, 5)))])
    return contexts


def _request(  # noqa: PLR0913 - what a request is made of
    context: Sequence[int],
    vocab_size: int,
    params: SamplingParams,
    request_id: Hashable = 0,
    max_tokens: int = 4,
    coins: Any = None,
) -> DraftRequest:
    shaper = LawShaper(compile_params(params, Vocabulary(_Numbers(), vocab_size)), context)
    drawn = CoinSource(3).at(len(context), Purpose.DRAFT)
    return DraftRequest(request_id, context, max_tokens, shaper, drawn if coins is None else coins, max_tokens + 2)


def _check_drafts(make: Callable[[], Drafter], vocab_size: int, params: SamplingParams, when: str) -> None:
    for max_tokens in (0, 1, 4):
        drafter = make()
        _require(isinstance(drafter, Drafter), f"{drafter!r} lacks a name, propose, observe or release")
        _require(isinstance(drafter.name, str) and bool(drafter.name), "its name is no text")
        for context in _contexts(vocab_size):
            given = list(context)
            drafts = drafter.propose([_request(given, vocab_size, params, max_tokens=max_tokens)])
            _require(len(drafts) == 1, f"{len(drafts)} drafts for 1 request {when}")
            _require(given == context, f"it modified the context {when}")
            request = _request(context, vocab_size, params, max_tokens=max_tokens)
            checked(drafts[0], request, vocab_size, reads_laws=not params.is_greedy)
            again = drafter.propose([request])
            _require(_same(drafts[0], again[0]), f"asked again with the same coins it says something else {when}")


def _check_requests_apart(make: Callable[[], Drafter], vocab_size: int, params: SamplingParams, when: str) -> None:
    together, alone = make(), [make() for _ in range(2)]
    for context in _contexts(vocab_size):
        texts = [context, context[::-1]]
        drafts = together.propose([_request(text, vocab_size, params, number) for number, text in enumerate(texts)])
        _require(len(drafts) == 2, f"{len(drafts)} drafts for 2 requests {when}")
        for number, (text, drafter) in enumerate(zip(texts, alone, strict=True)):
            (own,) = drafter.propose([_request(text, vocab_size, params, number)])
            _require(_same(own, drafts[number]), f"its draft depends on another request {when}")


def _check_memory(make: Callable[[], Drafter], vocab_size: int) -> None:
    drafter = make()
    drafter.release("never seen")
    for context in _contexts(vocab_size):
        (draft,) = drafter.propose([_request(context, vocab_size, _PARAMS["greedy"])])
        if len(draft):
            drafter.observe(0, _verdict(draft))
    drafter.release(0)
    drafter.release(0)
    context = _contexts(vocab_size)[0]
    (after,), (new,) = (one.propose([_request(context, vocab_size, _PARAMS["greedy"])]) for one in (drafter, make()))
    _require(_same(after, new), "it remembers a request that was released")


def _check_law(make: Callable[[], Drafter], vocab_size: int) -> None:
    target = HashLM(vocab_size, seed=5)

    def emit(prefix: tuple[int, ...], coins: Coins) -> tuple[int, ...]:
        request = _request(prefix, vocab_size, _PARAMS["sampled"], max_tokens=2, coins=_ExactCoins(coins))
        (draft,) = make().propose([request])
        laws = [exact_probs(target, (*prefix, *draft.before(row))) for row in range(len(draft) + 1)]
        probs = np.array([[float(weight) for weight in law] for law in laws])
        if isinstance(draft, TreeDraft):
            tree = verify_tree(draft, probs, _ExactCoins(coins))
            return (*(draft.token_ids[node] for node in tree.path), tree.next_token_id)
        rule = verify_point_mass if draft.probs is None else verify_block
        chain = rule(draft, probs, _ExactCoins(coins))
        return (*draft.token_ids[: chain.num_accepted], chain.next_token_id)

    prompt = (0, 1 % vocab_size, 0)
    emitted = emitted_law(lambda prefix, coins: emit((*prompt, *prefix), coins), num_tokens=_NUM_TOKENS)
    wanted = sequence_law(lambda prefix: exact_probs(target, (*prompt, *prefix)), num_tokens=_NUM_TOKENS)
    off = float(total_variation(emitted, wanted))
    _require(
        off < 1e-6,
        f"the law of what is emitted is off by {off:.3g}: the laws that it tells are not those that it drew from, or "
        "it decides what to propose by what it drew",
    )


def _verdict(draft: Proposal) -> VerificationResult | TreeResult:
    if isinstance(draft, Draft):
        return VerificationResult(1, 0, Outcome.BONUS if len(draft) == 1 else Outcome.RECOVERED)
    return TreeResult(draft.path(1), 0, Outcome.RECOVERED)


def _same(one: Proposal, other: Proposal) -> bool:
    laws = [
        None if draft.probs is None else [None if law is None else np.asarray(law).tolist() for law in draft.probs]
        for draft in (one, other)
    ]
    return (one.token_ids, one.parents, laws[0]) == (other.token_ids, other.parents, laws[1])


class _ExactCoins:
    """Decisions on floating point for an enumeration, which wants fractions."""

    def __init__(self, coins: Coins) -> None:
        self._coins = coins

    def at_depth(self, _depth: int, /) -> _ExactCoins:
        return self

    def accept(self, numerator: Any, denominator: Any) -> bool:
        return self._coins.accept(Fraction(float(numerator)), Fraction(float(denominator)))

    def draw(self, weights: Weights | Probs) -> int:
        return self._coins.draw(np.array([Fraction(weight) for weight in np.asarray(weights).tolist()], dtype=object))


class _Numbers:
    """A vocabulary in which a token is a letter."""

    eos_ids: Sequence[int] = ()
    special_ids: Sequence[int] = ()
    pieces: Sequence[str] = ()

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([97 + token_id % 26])

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:  # noqa: ARG002 - there are none
        return [ord(character) - 97 for character in text]
