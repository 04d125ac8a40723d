"""Coupled decoding: one seed, one text, whatever is drafted; and a fresh draw from the target's law for each seed."""

from fractions import Fraction

import numpy as np
import pytest

from outrider.audit.toy_laws import hashed, row
from outrider.backends.toy import HashLM, exact_probs
from outrider.errors import NumericalError, UsageError
from outrider.types import Draft, TreeDraft
from outrider.verification import CoinSource, RaceCoins, verify_point_mass, verify_tree
from outrider.verification.coins import draw_at
from outrider.verification.coupled import race
from outrider.verification.exact import emitted_law, outcomes, sequence_law

TARGET, OTHER, SPARSE = HashLM(11, seed=1), HashLM(11, seed=2), HashLM(11, seed=3, min_weight=0, max_weight=3)
SOURCE = CoinSource(seed=5)


def law(model, prefix):
    return exact_probs(model, prefix).astype(np.float64)


def plain_text(model, source, length):
    tokens = ()
    for _ in range(length):
        tokens = (*tokens, RaceCoins(source, len(tokens)).draw(law(model, tokens)))
    return tokens


def raced(model):
    """Draft as the target draws: by races on the same noise."""

    def propose(prefix, count, source):
        coins, tokens = RaceCoins(source, len(prefix)), ()
        for _ in range(count):
            tokens = (*tokens, coins.draw(law(model, prefix + tokens)))
        return tokens

    return propose


DRAFTERS = {
    "the target itself": raced(TARGET),
    "another model": raced(OTHER),
    "one with impossible tokens": raced(SPARSE),
    "constant": lambda prefix, count, source: (3,) * count,
    "argmax": lambda prefix, count, source: tuple(int(np.argmax(law(TARGET, prefix + (0,) * i))) for i in range(count)),
}

LENGTHS = {
    "none": lambda prefix: 0,
    "one": lambda prefix: 1,
    "four": lambda prefix: 4,
    "by position": lambda prefix: len(prefix) % 5,
    "by the last token": lambda prefix: (prefix[-1] if prefix else 2) % 4,
}


def speculative_text(source, length, propose, count):
    tokens, num_accepted, num_tested = (), 0, 0
    while len(tokens) < length:
        draft = Draft(propose(tokens, count(tokens), source))
        probs = np.array([law(TARGET, tokens + draft.token_ids[:i]) for i in range(len(draft) + 1)])
        result = verify_point_mass(draft, probs, RaceCoins(source, len(tokens)))
        num_accepted += result.num_accepted
        num_tested += min(result.num_accepted + 1, len(draft))
        tokens = (*tokens, *draft.token_ids[: result.num_accepted], result.next_token_id)
    return tokens[:length], num_accepted, num_tested


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_text_is_that_of_plain_decoding_for_every_drafter_and_length(drafter, length):
    for seed in range(3):
        source = CoinSource(seed)
        text, _accepted, _tested = speculative_text(source, 60, DRAFTERS[drafter], LENGTHS[length])
        assert text == plain_text(TARGET, source, 60)


def test_draft_that_is_the_target_is_accepted_whole():
    _text, num_accepted, num_tested = speculative_text(SOURCE, 60, DRAFTERS["the target itself"], lambda prefix: 4)
    assert num_accepted == num_tested > 0


@pytest.mark.parametrize("model", [OTHER, SPARSE])
def test_draft_is_accepted_as_often_as_races_on_the_same_noise_agree(model):
    num_accepted, expected, rounds = 0, 0.0, 1500
    for position in range(rounds):
        target, draft = law(TARGET, (position,)), law(model, (position,))
        proposed = Draft((RaceCoins(SOURCE, position).draw(draft),))
        result = verify_point_mass(proposed, np.array([target, target]), RaceCoins(SOURCE, position))
        num_accepted += result.num_accepted
        expected += agreement(target, draft)
    assert abs(num_accepted - expected) < 5 * (rounds / 4) ** 0.5


@pytest.mark.parametrize("widths", [(2, 2), (3, 1, 1), (1, 1)])
def test_text_is_that_of_plain_decoding_for_trees_of_the_first_to_arrive(widths):
    tokens = ()
    while len(tokens) < 60:
        token_ids, parents, level = [], [], [(-1, tokens)]
        for depth, width in enumerate(widths):
            grown = []
            for node, path in level:
                ids, times = race(SOURCE, len(tokens) + depth, law(OTHER, path))
                for token_id in ids[np.argsort(times)][:width].tolist():
                    grown.append((len(token_ids), (*path, token_id)))
                    token_ids.append(token_id)
                    parents.append(node)
            level = grown
        tree = TreeDraft(tuple(token_ids), tuple(parents), (None,) * (len(token_ids) + 1))
        paths = [tokens]
        for token_id, parent in zip(token_ids, parents, strict=True):
            paths.append((*paths[parent + 1], token_id))
        result = verify_tree(tree, np.array([law(TARGET, path) for path in paths]), RaceCoins(SOURCE, len(tokens)))
        tokens = (*tokens, *(token_ids[node] for node in result.path), result.next_token_id)
    assert tokens[:60] == plain_text(TARGET, SOURCE, 60)


# --- the same, exactly: shared noise that can be enumerated


class LatticeCoins:
    """Shared noise of six equally likely values for each position, read through an inverse CDF."""

    def __init__(self, noise, position):
        self._noise, self._position = noise, position

    def draw(self, weights):
        index = draw_at(self._noise[self._position], weights)
        self._position += 1
        return index


def sixths(seed):
    """Return a context-dependent law over three tokens in whole sixths."""
    rough = hashed(3, seed)

    def even(prefix):
        first, second = (int(share * 6) for share in rough(prefix)[:2])
        return row(first, second, 6 - first - second)

    return even


def test_shared_noise_emits_the_targets_law_exactly_and_plain_decodings_text_for_every_noise():
    target, draft = sixths(1), sixths(2)

    def lattice_noise(coins, count):
        return [Fraction(coins.draw(row(*[1] * 6)), 6) for _ in range(count)]

    def emit(noise):
        coins, drafted = LatticeCoins(noise, 0), ()
        for _ in range(2):
            drafted = (*drafted, coins.draw(draft(drafted)))
        probs = np.array([target(drafted[:i]) for i in range(3)])
        result = verify_point_mass(Draft(drafted), probs, LatticeCoins(noise, 0))
        return (*drafted[: result.num_accepted], result.next_token_id)

    def experiment(coins):
        noise = lattice_noise(coins, 3)
        plain, reader = (), LatticeCoins(noise, 0)
        for _ in range(3):
            plain = (*plain, reader.draw(target(plain)))
        emitted = emit(noise)
        assert emitted == plain[: len(emitted)]
        return plain

    assert outcomes(experiment) == sequence_law(target, 3)
    first_round = emitted_law(lambda prefix, coins: emit(lattice_noise(coins, 3)) if not prefix else (0,), 1)
    assert first_round == sequence_law(target, 1)


# --- wrong variants


def text_with(coins_of, count):
    """Speculative text where the noise is found by ``coins_of(position, start of the round)``."""
    tokens = ()
    while len(tokens) < 60:
        drafted = ()
        for _ in range(count):
            here = len(tokens) + len(drafted)
            drafted = (*drafted, coins_of(here, len(tokens)).draw(law(OTHER, tokens + drafted)))
        for i in range(count + 1):
            here = len(tokens)
            token_id = coins_of(here, here - i).draw(law(TARGET, tokens))
            tokens = (*tokens, token_id)
            if i == count or token_id != drafted[i]:
                break
    return tokens[:60]


class ByRank:
    """Noise that belongs to a token's rank, or to its place among the tokens kept."""

    def __init__(self, position):
        self._position = position

    def draw(self, weights):
        order = np.argsort(-weights, kind="stable")
        return int(order[RaceCoins(SOURCE, self._position).draw(weights[order])])


def test_noise_at_the_position_gives_the_same_text_for_every_length():
    texts = [text_with(lambda position, start: RaceCoins(SOURCE, position), count) for count in (0, 1, 3)]
    assert texts[0] == texts[1] == texts[2] == plain_text(TARGET, SOURCE, 60)


def test_equality_detects_noise_that_belongs_to_the_round():
    texts = [text_with(lambda position, start: RaceCoins(SOURCE, start), count) for count in (0, 3)]
    assert texts[0] != texts[1]


def test_acceptance_detects_noise_that_belongs_to_ranks():
    """Two laws that are the same but for a permutation agree only if noise is found by id."""
    one, other = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.5, 0.2])
    agree = [sum(coins(i).draw(one) == coins(i).draw(other) for i in range(2000)) for coins in (ByRank, races)]
    assert agree[0] / 2000 < 0.3
    assert agree[1] / 2000 == pytest.approx(float(agreement(row(5, 3, 2), row(3, 5, 2))), abs=0.04)


def races(position):
    return RaceCoins(SOURCE, position)


def agreement(one, other):
    """Return the chance that two races on the same noise have the same winner (2408.07978)."""
    return sum(
        1 / sum(max(one[j] / one[i], other[j] / other[i]) for j in range(len(one)) if one[j] or other[j])
        for i in range(len(one))
        if one[i] and other[i]
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (row(1, 2), row(2, 1), Fraction(2, 3)),
        (row(5, 3, 2), row(2, 3, 5), Fraction(41, 65)),
        (row(6, 3, 1), row(1, 3, 6), Fraction(2, 5)),
        (row(7, 3), row(1, 1), Fraction(4, 5)),
    ],
)
def test_races_agree_as_often_as_published(one, other, expected):
    assert agreement(one, other) == expected
    overlap = sum(np.minimum(one, other))
    assert overlap / (2 - overlap) <= expected <= overlap
    trials = 6000
    floats = [probs.astype(np.float64) for probs in (one, other)]
    same = sum(races(position).draw(floats[0]) == races(position).draw(floats[1]) for position in range(trials))
    assert abs(same / trials - expected) < 5 * (0.25 / trials) ** 0.5


# --- races


def test_winners_follow_the_law():
    probs = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    trials = 10_000
    counts = np.bincount([races(position).draw(probs) for position in range(trials)], minlength=5)
    assert counts[4] == 0
    chi_squared = ((counts[:4] - trials * probs[:4]) ** 2 / (trials * probs[:4])).sum()
    assert chi_squared < 30.66  # 1e-6 for 3 degrees of freedom


def test_second_to_arrive_is_drawn_without_the_first():
    probs = np.array([0.5, 0.3, 0.2])
    orders = [tuple(np.argsort(race(SOURCE, position, probs)[1])[:2]) for position in range(6000)]
    share = orders.count((1, 0)) / len(orders)
    assert share == pytest.approx(0.3 * 0.5 / 0.7, abs=0.03)


def test_noise_of_a_token_depends_on_position_and_id_alone():
    wide = np.full(300, 1 / 300)
    ids, times = race(SOURCE, 7, wide)
    some = np.zeros(200)
    some[[5, 17, 150]] = 1 / 300
    some_ids, some_times = race(SOURCE, 7, some)
    assert some_ids.tolist() == [5, 17, 150]
    assert (some_times == times[[5, 17, 150]]).all()
    assert (ids == np.arange(300)).all()
    assert not np.isin(race(SOURCE, 8, wide)[1], times).any()
    assert not np.isin(race(CoinSource(6), 7, wide)[1], times).any()


def test_noise_is_exponential_and_never_zero_or_infinite():
    ids, times = race(SOURCE, 0, np.ones(100_000))
    assert len(ids) == len(times) == 100_000
    assert (times > 0).all()
    assert np.isfinite(times).all()
    counts = np.histogram(np.exp(-times), bins=50, range=(0, 1))[0]
    assert 23.98 < ((counts - 2000) ** 2 / 2000).sum() < 85.35  # the middle 99.8 % for 49 degrees of freedom


def test_scale_of_the_weights_does_not_matter_but_for_rounding_and_subnormals_are_no_trouble():
    probs = np.array([0.5, 0.25, 0.25])
    assert [races(i).draw(probs) for i in range(50)] == [races(i).draw(8 * probs) for i in range(50)]
    assert races(0).draw(np.array([5e-324, 1.0, 0.0])) == 1


@pytest.mark.parametrize("weights", [[0.5, float("nan")], [0.0, 0.0], [1.0, -1.0, 1.0], [1.0, float("inf")]])
def test_race_refuses_what_is_not_a_law(weights):
    with pytest.raises(NumericalError, match="cannot draw"):
        races(0).draw(np.array(weights))


def test_shared_noise_does_not_accept():
    """A coin that the draft has seen is no coin; the token rule must not be combined with it."""
    with pytest.raises(UsageError, match="verify by verify_point_mass"):
        races(0).accept(1.0, 2.0)
