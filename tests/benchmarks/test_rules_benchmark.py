"""What the benchmark computes of a draft is what the rules do, by enumeration."""

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.rules import Round, accepted_by_block, accepted_by_token, difference, ranks_of_draws, summary
from outrider.backends.toy import HashLM, exact_probs
from outrider.types import Draft
from outrider.verification import verify_block, verify_token
from outrider.verification.exact import outcomes
from outrider.verification.tree import verify_siblings

TARGET, DRAFT = HashLM(4, seed=1), HashLM(4, seed=2)
MEANS = [(accepted_by_token, verify_token), (accepted_by_block, verify_block)]


@pytest.mark.parametrize(("mean", "rule"), MEANS)
@pytest.mark.parametrize("token_ids", [(0,), (1, 2), (3, 3, 0), (2, 1, 0), (0, 1, 2)])
def test_the_mean_number_accepted_of_a_given_draft(mean, rule, token_ids):
    probs = np.array([exact_probs(DRAFT, token_ids[:row]) for row in range(len(token_ids))])
    laws = np.array([exact_probs(TARGET, token_ids[:row]) for row in range(len(token_ids) + 1)])
    exact = outcomes(lambda coins: rule(Draft(token_ids, probs), laws, coins).num_accepted)
    found = mean(Draft(token_ids, probs.astype(float)), laws.astype(float))
    assert found == pytest.approx(float(sum(count * share for count, share in exact.items())))


@pytest.mark.parametrize("token_ids", [(0,), (1, 2), (3, 2, 0), (3, 2, 1, 0)])
def test_the_chance_of_each_rank(token_ids):
    target, drafted = exact_probs(TARGET, ()), exact_probs(DRAFT, ())
    exact = outcomes(lambda coins: verify_siblings(token_ids, drafted, target, coins)[0])
    found = ranks_of_draws(target.astype(float), drafted.astype(float), token_ids)
    assert found[: len(token_ids)] == pytest.approx([float(exact.get(n, Fraction(0))) for n in range(len(token_ids))])


def test_sums_and_paired_differences():
    done = [
        [
            Round("a", 2, 4, 0.1, 0.2),
            Round("b", 1, 4, 0.1, 0.1),
            Round("a", 4, 4, 0.1, 0.2),
            Round("b", 1, 4, 0.1, 0.1),
        ],
        [Round("a", 3, 4, 0.1, 0.2), Round("b", 2, 4, 0.1, 0.1)],
    ]
    table = summary(done)
    assert table["a"]["accepted_per_round"] == 3
    assert table["a"]["tokens_per_s"] == pytest.approx(12 / 0.9)
    assert table["b"]["rounds"] == 3
    found = difference(done, "a", "b")
    assert (found["mean"], found["prompts"]) == (1.5, 2)
    assert found["standard_error"] == pytest.approx(0.5)
