"""Cells of the law of a few tokens, and the orders that turn tokens into bins."""

import itertools

import numpy as np
import pytest
from engine_fakes import compiled

from outrider.audit.cells import CellTree, DirectedOrder, PrefixLaws
from outrider.audit.memory import Memory
from outrider.backends.toy import HashLM, ToyBackend
from outrider.sampling import LawShaper, SamplingParams

MODEL = HashLM(4, seed=1)


@pytest.fixture
def laws():
    params = compiled(SamplingParams(temperature=1.0), 4)
    return PrefixLaws(Memory(ToyBackend(MODEL)), (1, 2), LawShaper(params, (1, 2)), 4)


def prob(laws, tokens):
    return float(np.prod([laws.probs(tokens[:at])[token] for at, token in enumerate(tokens)]))


@pytest.mark.parametrize(("depth", "num_cells"), [(1, 8), (3, 8), (3, 20), (2, 1)])
def test_cells_are_a_partition_with_the_laws_own_probabilities(laws, depth, num_cells):
    tree = CellTree(laws, depth, num_cells, 0.001)
    seen = np.zeros(len(tree.probs))
    for tokens in itertools.product(range(4), repeat=depth):
        seen[tree.cell(tokens)] += prob(laws, tokens)
    np.testing.assert_allclose(seen, tree.probs, atol=1e-6)
    assert len(tree.probs) <= num_cells


def test_later_tokens_get_their_share_of_the_cells(laws):
    tree = CellTree(laws, 3, 8, 0.001)
    firsts = {tree.cell((0, *rest)) for rest in itertools.product(range(4), repeat=2)}
    seconds = [{tree.cell((first, second, 0)) for second in range(4)} for first in range(4)]
    assert len(firsts) >= 1
    assert any(len(cells) > 1 for cells in seconds)


def test_a_cell_must_be_likely_enough(laws):
    assert CellTree(laws, 1, 8, 0.9).probs == [1.0]


def test_stretches_and_orders_cover_the_line(laws):
    target = laws.probs(())
    stretches = sorted(laws.stretch((), token) for token in range(4))
    assert stretches[0][0] == 0
    for (before, own), (after, _) in itertools.pairwise(stretches):
        assert before + own == pytest.approx(after)
    drafted = np.array([0.0, 0.2, 0.3, 0.5])
    for told in (drafted, 2, None):
        order = DirectedOrder(target, told)
        ends = sorted((order._before[token], token) for token in range(4))
        assert ends[0][0] == 0
        assert sum(target[token] for _, token in ends[:-1]) == pytest.approx(ends[-1][0])
    assert max(range(4), key=lambda token: DirectedOrder(target, 2)._before[token]) == 2
