"""What the default budget of ``outrider audit pair`` finds: the commonest fault, so rare that it moves laws by 0.02.

    python benchmarks/audit_power.py --runs 400

Each run simulates an audit's counts at as many places as by default, under laws like those of a language model in two
minds, and judges them by the audit's own tests, beside others that find nothing.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from outrider.audit.cells import DirectedOrder
from outrider.audit.control import moved_by_fault
from outrider.audit.evidence import Fit
from outrider.audit.sampled import Budget
from outrider.audit.sequential import NUM_BINS
from outrider.audit.statistics import Cells, holm, pooled
from outrider.types import Probs

NUM_TESTS, LEVEL = 20, 1e-4


def place(rng: np.random.Generator) -> tuple[Probs, Probs, Probs]:
    """Return a law of the target, one of a draft that resembles it, and the target's under the fault."""
    target = rng.dirichlet(np.full(200, 0.05))
    drafted = 0.5 * target + 0.5 * rng.dirichlet(np.full(200, 0.05))
    accepted = np.minimum(target, drafted)
    return target, drafted, accepted + (1 - accepted.sum()) * target


def is_found(rng: np.random.Generator, distance: float) -> bool:
    """Return whether a simulated audit fails if every place's law is off by a total variation."""
    budget = Budget()
    first, directed = [], np.zeros(NUM_BINS, dtype=np.int64)
    for _ in range(budget.num_prefixes):
        target, drafted, faulty = place(rng)
        share = distance / moved_by_fault(target, drafted)
        law = (1 - share) * target + share * faulty
        counts = rng.multinomial(budget.draws // budget.num_prefixes, law / law.sum())
        first.append(pooled(counts, target / target.sum(), least_expected=40, most_cells=8))
        order = DirectedOrder(target, drafted)
        for token_id in np.flatnonzero(counts).tolist():
            for uniform in rng.random(counts[token_id]):
                directed[order.bin(token_id, uniform)] += 1
    bins = Cells(tuple(directed.tolist()), (1 / NUM_BINS,) * NUM_BINS)
    p_values = [Fit("first", tuple(first)).finding().p_value, Fit("directed", (bins,)).finding().p_value]
    return any(holm([*p_values, *[1.0] * (NUM_TESTS - len(p_values))], LEVEL))


def main() -> None:
    """Print how often the fault is found, and how often there is an alarm without one, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    found = {
        distance: sum(is_found(rng, distance) for _ in range(options.runs)) for distance in (0.0, 0.01, 0.015, 0.02)
    }
    print(json.dumps({"runs": options.runs, "seed": options.seed, "found_by_total_variation": found}))


if __name__ == "__main__":
    main()
