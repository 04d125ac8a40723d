"""Published figures of speculative sampling, met by enumerating the rules themselves, to the exact fraction."""

from fractions import Fraction

import numpy as np
import pytest

from outrider.audit.toy_laws import restricted, row
from outrider.types import Draft
from outrider.verification import verify_token
from outrider.verification.exact import dense_drafter, outcomes


def emitted_per_round(target, draft, num_draft_tokens):
    """Return the mean number of tokens of a round under the token rule, on laws that ignore their context."""
    drafter = dense_drafter(draft, num_draft_tokens)

    def num_emitted(coins):
        proposed = drafter((), coins)
        return 1 + verify_token(proposed, np.array([target(())] * (num_draft_tokens + 1)), coins).num_accepted

    return sum(count * share for count, share in outcomes(num_emitted).items())


def emitted_at(alpha, num_draft_tokens):
    """The same for laws that overlap by ``alpha``: the draft is certain of what the target gives that chance."""
    target, draft = row(alpha, 1 - alpha), row(1, 0)
    return emitted_per_round(lambda _prefix: target, lambda _prefix: draft, num_draft_tokens)


@pytest.mark.parametrize("alpha", ["0.5", "0.6", "0.7", "0.75", "0.8", "0.9", "0.95"])
@pytest.mark.parametrize("num_draft_tokens", [1, 2, 3, 4, 5, 7, 10])
def test_tokens_per_round_are_the_capped_geometric_series(alpha, num_draft_tokens):
    """Leviathan et al. (2211.17192), equation 1."""
    a = Fraction(alpha)
    assert emitted_at(a, num_draft_tokens) == (1 - a ** (num_draft_tokens + 1)) / (1 - a)


@pytest.mark.parametrize(
    ("alpha", "num_draft_tokens", "operations", "speed"),
    [
        ("0.6", 2, 1.53, 1.96),
        ("0.7", 3, 1.58, 2.53),
        ("0.8", 2, 1.23, 2.44),
        ("0.8", 5, 1.63, 3.69),
        ("0.9", 2, 1.11, 2.71),
        ("0.9", 10, 1.60, 6.86),
    ],
)
def test_operations_and_speed_of_a_free_draft(alpha, num_draft_tokens, operations, speed):
    """Leviathan et al., table 1: rows of the target computed per token, and tokens per pass."""
    emitted = emitted_at(Fraction(alpha), num_draft_tokens)
    assert round(float(emitted), 2) == speed
    assert round(float((num_draft_tokens + 1) / emitted), 2) == operations


@pytest.mark.parametrize(
    ("alpha", "num_draft_tokens", "cost", "expected"),
    [
        ("0.75", 7, "0.02", 3.2),
        ("0.80", 7, "0.04", 3.3),
        ("0.82", 7, "0.11", 2.5),
        ("0.62", 7, "0.02", 2.3),
        ("0.68", 5, "0.04", 2.4),
        ("0.71", 3, "0.11", 2.0),
        ("0.65", 5, "0.02", 2.4),
        ("0.73", 5, "0.04", 2.6),
        ("0.74", 3, "0.11", 2.0),
        ("0.53", 5, "0.02", 1.9),
        ("0.55", 3, "0.04", 1.8),
        ("0.56", 3, "0.11", 1.6),
    ],
)
def test_expected_speedups_of_real_pairs(alpha, num_draft_tokens, cost, expected):
    """Leviathan et al., table 4, column Exp; its acceptance is rounded to two places."""
    speedup = emitted_at(Fraction(alpha), num_draft_tokens) / (num_draft_tokens * Fraction(cost) + 1)
    assert abs(float(speedup) - expected) < 0.07


def test_a_whole_draft_of_five_is_accepted_twice_as_often_at_80_as_at_70_percent():
    """What "from 70 % to 80 % doubles" is true of; of speedups it is not."""
    shares = []
    for alpha in (Fraction(7, 10), Fraction(8, 10)):
        target, drafter = row(alpha, 1 - alpha), dense_drafter(lambda _prefix: row(1, 0), 5)

        def num_accepted(coins, target=target, drafter=drafter):
            return verify_token(drafter((), coins), np.array([target] * 6), coins).num_accepted

        shares.append(outcomes(num_accepted)[5])
    assert shares == [Fraction(7, 10) ** 5, Fraction(8, 10) ** 5]
    assert [round(float(share), 3) for share in shares] == [0.168, 0.328]
    assert emitted_at(Fraction(8, 10), 5) / emitted_at(Fraction(7, 10), 5) < Fraction(3, 2)


def test_tokens_shared_by_two_vocabularies():
    """Timor et al. (2502.05202): the draft's law on the tokens that the target knows, renormalised."""
    target, shared = row(4, 3, 2, 1), restricted(lambda _prefix: row(1, 2, 3, 4), (0, 1, 2))
    assert shared(()).tolist() == [Fraction(1, 6), Fraction(1, 3), Fraction(1, 2), 0]
    assert emitted_per_round(lambda _prefix: target, shared, 1) == 1 + Fraction(2, 3)


def test_a_law_that_was_not_renormalised_is_refused():
    with pytest.raises(ValueError, match="sums to"):
        verify_token(Draft((0,), np.array([[0.1, 0.2, 0.3, 0.0]])), np.full((2, 4), 0.25), None)
