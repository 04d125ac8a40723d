"""Random decisions: exact on a lattice, right at the ends of the range, and a function of their address alone."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from by_draft import verify

from outrider.audit.toy_laws import row
from outrider.backends.toy import HashLM, exact_probs
from outrider.errors import NumericalError
from outrider.types import Draft
from outrider.verification import CoinSource, Purpose, verify_block, verify_point_mass, verify_token
from outrider.verification.coins import RoundCoins, accept_at, draw_at

SMALLEST, LARGEST = 0.0, 1.0 - 2.0**-53


def lattice(size):
    return [Fraction(point, size) for point in range(size)]


# --- accept_at


@pytest.mark.parametrize("denominator", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("numerator", range(8))
def test_accepts_on_exactly_its_share_of_a_lattice(numerator, denominator):
    """With uniforms on multiples of 1/12, the production code accepts numerator / denominator of them, no more."""
    accepted = sum(accept_at(uniform, Fraction(numerator, 9), Fraction(denominator, 9)) for uniform in lattice(12))
    assert Fraction(accepted, 12) == min(Fraction(numerator, denominator), 1)


WRONG_ACCEPTS = {
    "not strict": lambda uniform, numerator, denominator: uniform * denominator <= numerator,
    "uniform from (0, 1]": lambda uniform, numerator, denominator: (
        accept_at(uniform + Fraction(1, 12), numerator, denominator)
    ),
    "uniform stuck at zero": lambda uniform, numerator, denominator: accept_at(0, numerator, denominator),
}


@pytest.mark.parametrize("name", WRONG_ACCEPTS)
def test_lattice_detects_acceptance(name):
    accepted = [sum(WRONG_ACCEPTS[name](uniform, numerator, 3) for uniform in lattice(12)) for numerator in range(4)]
    assert accepted != [0, 4, 8, 12]


def test_impossible_token_is_rejected_at_a_uniform_of_zero():
    """sglang#35771: ``coin <= ratio`` accepts a token of zero probability when the coin is exactly zero."""
    assert not accept_at(SMALLEST, 0.0, 0.25)
    assert not accept_at(SMALLEST, 0.0, 0.0)


@pytest.mark.parametrize("prob", [1.0, 0.1, 1e-300, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("uniform", [SMALLEST, 1.0 - 2.0**-24, LARGEST])
def test_certain_token_is_accepted_at_the_largest_uniform(uniform, prob):
    assert accept_at(uniform, prob, prob)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -0.1])
def test_accept_refuses_what_is_not_a_probability(bad):
    with pytest.raises(NumericalError, match=str(bad)):
        accept_at(0.5, bad, 1.0)
    with pytest.raises(NumericalError, match=str(bad)):
        accept_at(0.5, 1.0, bad)


# --- draw_at


@pytest.mark.parametrize("weights", [(1, 2, 3), (0, 1, 0, 5, 0), (6,), (0, 0, 6), (3, 0, 0, 3), (1, 1, 1, 1, 1, 1)])
def test_draws_each_entry_on_exactly_its_share_of_a_lattice(weights):
    drawn = Counter(draw_at(uniform, row(*weights)) for uniform in lattice(12))
    assert drawn == {index: 2 * weight for index, weight in enumerate(weights) if weight}


@pytest.mark.parametrize("size", [511, 512, 513, 1024, 1300])
def test_draws_each_entry_of_several_blocks_on_exactly_its_share(size):
    shares = {0: 2, 1: 1, size // 2: 1, size // 2 + 1: 3, size - 2: 1, size - 1: 4}
    weights = np.array([Fraction(shares.get(index, 0)) for index in range(size)])
    assert Counter(draw_at(uniform, weights) for uniform in lattice(12)) == shares


@pytest.mark.parametrize("uniform", [SMALLEST, 0.5, LARGEST])
@pytest.mark.parametrize("size", [3, 600, 2000])
def test_entries_of_zero_weight_at_the_ends_are_never_drawn(uniform, size):
    for alive in (0, 1, size // 2, size - 1):
        weights = np.zeros(size)
        weights[alive] = 0.3
        assert draw_at(uniform, weights) == alive


def test_rounding_at_the_end_of_the_range_stays_on_the_last_entry_with_weight():
    weights = np.zeros(1030)
    weights[:1025] = 0.1  # cumulated in any order, this is not 102.5
    assert draw_at(LARGEST, weights) == 1024
    assert draw_at(LARGEST, np.array([0.0, 5e-324, 0.0])) == 1  # uniform * total is rounded up to the total


@pytest.mark.parametrize(
    "weights",
    [[0.5, float("nan")], [float("nan")] * 3, [1.0, -0.1], [0.0, 0.0], [1.0, float("inf")]],
    ids=["a NaN", "all NaN", "negative", "all zero", "infinite"],
)
def test_draw_refuses_what_is_not_a_law(weights):
    """vllm#42722, #45060, #53029: a row of NaN became a token outside the vocabulary, or a plausible one."""
    with pytest.raises(NumericalError, match="cannot draw"):
        draw_at(0.5, np.array(weights))


def test_draws_follow_the_weights_over_a_vocabulary_of_real_size():
    rng = np.random.default_rng(0)
    weights = rng.random(151_936) ** 8
    cumulated = np.cumsum(weights)
    for uniform in rng.random(50):
        index = draw_at(uniform, weights)
        assert cumulated[index] - weights[index] <= uniform * cumulated[-1] + 1e-6
        assert uniform * cumulated[-1] <= cumulated[index] + 1e-6


# --- CoinSource


class SpySource:
    """Records addresses, so that tests see when one is used twice."""

    def __init__(self, source):
        self.source = source
        self.addresses = []

    def uniform(self, *address):
        self.addresses.append(address)
        return self.source.uniform(*address)


def test_decisions_are_a_function_of_their_address():
    weights = np.array([0.25, 0.25, 0.25, 0.25])
    source = CoinSource(seed=7)
    alone = [source.at(12, Purpose.VERIFY).draw(weights) for _ in range(3)]
    assert len(set(alone)) == 1
    busy = source.at(12, Purpose.VERIFY)
    source.at(11, Purpose.VERIFY).draw(weights)
    source.at(12, Purpose.DRAFT).draw(weights)
    [busy.accept(1.0, 2.0) for _ in range(5)]
    assert busy.draw(weights) == alone[0]


def uniforms(source, *, start=0, count=2000, purpose=Purpose.VERIFY, kind=0):
    return np.array([source.uniform(purpose, kind, start + position, 0) for position in range(count)])


def test_uniforms_are_multiples_of_two_to_the_minus_53_from_zero_to_below_one():
    values = uniforms(CoinSource(seed=0))
    assert ((values >= 0) & (values < 1)).all()
    assert (values * 2.0**53 == np.floor(values * 2.0**53)).all()


def test_uniforms_look_uniform():
    counts = np.histogram(uniforms(CoinSource(seed=1), count=20_000), bins=50, range=(0, 1))[0]
    chi_squared = ((counts - 400) ** 2 / 400).sum()
    assert 23.98 < chi_squared < 85.35  # the middle 99.8 % for 49 degrees of freedom


@pytest.mark.parametrize(
    "other",
    [
        lambda: uniforms(CoinSource(seed=2)),
        lambda: uniforms(CoinSource(seed=1, sequence=1)),
        lambda: uniforms(CoinSource(seed=1), purpose=Purpose.DRAFT),
        lambda: uniforms(CoinSource(seed=1), kind=1),
        lambda: uniforms(CoinSource(seed=1), start=1),
        lambda: uniforms(CoinSource(seed=2**64 - 1, sequence=2**64 - 1)),
    ],
    ids=["seed", "sequence", "purpose", "kind", "position", "largest"],
)
def test_streams_of_different_keys_are_unrelated(other):
    one, two = uniforms(CoinSource(seed=1)), other()
    assert not np.isin(one, two).any() or (one[1:] == two[:-1]).all()  # the shifted stream shares values, shifted
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.08


def plain_text(model, source, length):
    tokens = ()
    for _ in range(length):
        tokens = (*tokens, source.at(len(tokens), Purpose.VERIFY).draw(floats(model, tokens)))
    return tokens


def floats(model, prefix):
    return exact_probs(model, prefix).astype(np.float64)


def speculative_text(model, source, length, propose, rule):
    tokens = ()
    while len(tokens) < length:
        draft = propose(tokens, source.at(len(tokens), Purpose.DRAFT))
        probs = np.array([floats(model, tokens + draft.token_ids[:i]) for i in range(len(draft) + 1)])
        result = rule(draft, probs, source.at(len(tokens), Purpose.VERIFY))
        tokens = (*tokens, *draft.token_ids[: result.num_accepted], result.next_token_id)
    return tokens[:length]


@pytest.mark.parametrize("num_draft_tokens", [0, 1, 2, 5])
def test_seeded_text_is_the_same_whatever_was_proposed_without_drawing(num_draft_tokens):
    model, source = HashLM(8, seed=3), CoinSource(seed=11)

    def propose(prefix, _coins):
        return Draft(tuple((len(prefix) + i) % 8 for i in range(num_draft_tokens)))

    assert speculative_text(model, source, 60, propose, verify_point_mass) == plain_text(model, source, 60)


def drawn_from(model, num_draft_tokens):
    def propose(prefix, coins):
        tokens, laws = (), []
        for _ in range(num_draft_tokens):
            laws.append(floats(model, prefix + tokens))
            tokens = (*tokens, coins.draw(laws[-1]))
        return Draft(tokens, np.array(laws))

    return propose


def test_seeded_text_repeats_and_seeds_differ():
    model = HashLM(8, seed=3)
    texts = [
        speculative_text(model, CoinSource(seed), 40, drawn_from(HashLM(8, seed=4), 3), verify) for seed in (5, 5, 6)
    ]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("rule", [verify_token, verify_point_mass, verify_block])
def test_no_address_is_used_twice_in_a_sequence(rule):
    """A coin that was looked at once is not random any more, be it for a draft that was turned back."""
    target, propose, spy = HashLM(4, seed=1), drawn_from(HashLM(4, seed=2), 4), SpySource(CoinSource(seed=9))
    tokens = ()
    while len(tokens) < 80:
        draft = propose(tokens, RoundCoins(spy, len(tokens), Purpose.DRAFT))
        probs = np.array([floats(target, tokens + draft.token_ids[:i]) for i in range(len(draft) + 1)])
        result = rule(draft, probs, RoundCoins(spy, len(tokens), Purpose.VERIFY))
        tokens = (*tokens, *draft.token_ids[: result.num_accepted], result.next_token_id)
    assert len(spy.addresses) == len(set(spy.addresses)) > 150


def test_laws_half_apart_show_half_acceptance():
    """vllm-ascend#13470: a generator that is missing shows as an acceptance of one, which is a fault, not a success."""
    target, draft = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.3, 0.6])
    source, accepted = CoinSource(seed=0), 0
    for position in range(4000):
        token_id = source.at(position, Purpose.DRAFT).draw(draft)
        proposed = Draft((token_id,), np.array([draft]))
        accepted += verify(proposed, np.array([target, target]), source.at(position, Purpose.VERIFY)).num_accepted
    assert abs(accepted / 4000 - 0.5) < 4 * (0.25 / 4000) ** 0.5


def test_emitted_tokens_follow_the_target_on_real_coins():
    target, draft = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.2, 0.3, 0.4])
    source, counts, rounds = CoinSource(seed=4), np.zeros(4), 8_000
    for position in range(rounds):
        token_id = source.at(position, Purpose.DRAFT).draw(draft)
        result = verify(
            Draft((token_id,), draft[None]), np.array([target, target]), source.at(position, Purpose.VERIFY)
        )
        counts[token_id if result.num_accepted else result.next_token_id] += 1
    chi_squared = ((counts - rounds * target) ** 2 / (rounds * target)).sum()
    assert chi_squared < 30.66  # 1e-6 for 3 degrees of freedom


class CoinsByPosition(RoundCoins):
    """Wrong: decision number ``index`` belongs to position ``start + index``, whichever round asks."""

    __slots__ = ()

    def accept(self, numerator, denominator):
        self._accepts += 1
        uniform = self._source.uniform(self._purpose, 0, self._position + self._accepts, 0)
        return accept_at(uniform, numerator, denominator)

    def draw(self, weights):
        self._draws += 1
        return draw_at(self._source.uniform(self._purpose, 1, self._position + self._draws, 0), weights)


@pytest.mark.parametrize(("coins", "is_right"), [(RoundCoins, True), (CoinsByPosition, False)])
def test_block_rule_over_successive_rounds_detects_coins_that_are_looked_at_twice(coins, is_right):
    target, draft = np.array([1 / 3, 2 / 3]), np.array([2 / 3, 1 / 3])
    pairs, sequences = np.zeros((2, 2)), 4000
    for sequence in range(sequences):
        source, tokens = CoinSource(seed=3, sequence=sequence), ()
        while len(tokens) < 3:
            drafting = coins(source, len(tokens), Purpose.DRAFT)
            proposed = Draft(tuple(drafting.draw(draft) for _ in range(2)), np.array([draft, draft]))
            verifying = coins(source, len(tokens), Purpose.VERIFY)
            result = verify_block(proposed, np.array([target] * 3), verifying)
            tokens = (*tokens, *proposed.token_ids[: result.num_accepted], result.next_token_id)
        pairs[tokens[1], tokens[2]] += 1
    expected = sequences * np.outer(target, target)
    chi_squared = ((pairs - expected) ** 2 / expected).sum()
    assert (chi_squared < 30.66) == is_right  # 1e-6 for 3 degrees of freedom
