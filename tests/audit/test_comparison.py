"""Draws against draws and draws against a law: no false alarms, and faults found with the power that is claimed."""

from datetime import datetime, timezone

import numpy as np
import pytest

from outrider.audit.callables import audit_callable
from outrider.audit.comparison import against_law, compare
from outrider.audit.evidence import weight
from outrider.audit.statistics import least_total_variation

LEVEL, POWER = 1e-3, 0.9
LAW = np.array([0.5, 0.3, 0.2, 0.0])


def law(prompt, start):
    """Depend on the prompt and on what is drawn so far."""
    return np.append(np.roll(LAW[:3], len(prompt) + sum(start)), 0.0)


def draws(num, rng, tilt=0.0, depth=3, prompts=("a", "bb")):
    """Return draws by prompt; a tilt moves that much probability to the least likely token, from the second one on."""
    drawn = {}
    for prompt in prompts:
        drawn[prompt] = []
        for _ in range(num):
            out = ()
            for place in range(depth):
                probs = law(prompt, out).copy()
                if place:
                    probs[np.argmax(probs)] -= tilt
                    probs[np.argmin(probs[:3])] += tilt
                out = (*out, int(rng.choice(4, p=probs)))
            drawn[prompt].append(out)
    return drawn


def rates(evidence_of, rounds):
    """Return how often evidence rejects at the level, and one piece of it."""
    found = [evidence_of(np.random.default_rng(seed)) for seed in range(rounds)]
    return sum(one.finding().p_value < LEVEL for one in found) / rounds, found[0]


@pytest.mark.parametrize(
    "evidence_of",
    [
        lambda rng, tilt=0.0: compare("x", draws(400, rng, tilt), draws(400, rng))[0],
        lambda rng, tilt=0.0: against_law("x", draws(200, rng, tilt), law)[0],
    ],
    ids=["two samples", "law"],
)
def test_size_and_power(evidence_of):
    false_alarms, one = rates(evidence_of, 20)
    assert false_alarms == 0
    least = least_total_variation(*weight(one), LEVEL, POWER)
    # Half of what is looked at are first tokens, which are right: so the others are tilted by twice as much.
    found, _ = rates(lambda rng: evidence_of(rng, 2 * least), 20)
    assert 2 * least < LAW.max()
    assert found >= POWER


def test_the_distance_is_a_lower_bound_that_grows_with_the_fault():
    rng = np.random.default_rng(7)
    right = draws(3000, rng, depth=2)
    _, none = compare("x", right, draws(3000, rng, depth=2))
    _, some = compare("x", draws(3000, rng, 0.15, depth=2), right)
    _, exact = against_law("x", draws(3000, rng, 0.15, depth=2), law)
    assert none.low == 0
    assert none.value < 0.02
    for one in (some, exact):  # the tilt is of the second token alone, whatever the first, so it is the joint law's
        assert one.low <= 0.15 <= one.high + 0.01
        assert "total variation at least 0.1" in str(one)


def test_an_impossible_token_is_a_failure_by_itself():
    drawn = draws(200, np.random.default_rng(1))
    drawn["a"][7] = (3, 0, 0)
    evidence, _ = against_law("x", drawn, law)
    assert evidence.finding().p_value == 0


@pytest.mark.parametrize("after", [(), (0,)])
def test_a_token_beyond_the_vocabulary_is_a_failure_by_itself(after):
    drawn = draws(200, np.random.default_rng(1), depth=2, prompts=("a",))
    drawn["a"] += [(4, *after)] * 60
    evidence, distance = against_law("x", drawn, law)
    assert evidence.finding().p_value == 0
    assert distance.value > 0.1
    drawn["a"][200:] = [(0, 4 + number) for number in range(60)]  # no two alike
    assert against_law("x", drawn, law)[0].finding().p_value == 0


def test_few_draws_are_no_evidence():
    few = draws(10, np.random.default_rng(1))
    assert compare("x", few, few)[0].num == 0
    assert against_law("x", few, law)[0].num == 0


def test_too_few_draws_to_be_compared_say_so():
    rng = np.random.default_rng(1)

    def sample(_prefix, num):
        return rng.choice(3, p=LAW[:3], size=(num, 2)).tolist()

    now = datetime.now(timezone.utc)
    for options in ({"baseline": sample}, {"law": lambda _ids: LAW}):
        certificate = audit_callable(sample, [[1]], num_draws=40, total_variation=0.05, now=now, **options)
        assert certificate.judge().verdict == "inconclusive"
        assert certificate.judge().reason.endswith(
            "draws: 40 after a prefix cannot be compared; raise num_draws to 50 at the very least"
        )
