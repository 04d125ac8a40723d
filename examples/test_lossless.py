"""How an engine's author tests losslessness with the fixture ``outrider_audit``, which an installed outrider brings.

    pytest examples/test_lossless.py

The engine here is a toy of four tokens. Put your own in the place of ``sample``: from the token ids of a prefix and a
number n, n independent draws of what follows, each a list of token ids.
"""

import numpy as np
import pytest

RNG = np.random.default_rng(1)
TARGET = np.array([[0.7, 0.2, 0.1, 0.0], [0.1, 0.6, 0.3, 0.0], [0.4, 0.4, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25]])
DRAFT = np.full((4, 4), 0.25)


def law(prefix):
    """Return the target's law of the next token, which depends on the last one."""
    return TARGET[prefix[-1]]


def one_round(last, residual):
    """Draft one token and verify it; return it, or what replaces it."""
    target, draft = TARGET[last], DRAFT[last]
    token = int(RNG.choice(4, p=draft))
    if RNG.random() * draft[token] < target[token]:
        return token
    weights = residual(target, draft)
    return int(RNG.choice(4, p=weights / weights.sum()))


def sample(prefix, n, residual=lambda target, draft: np.maximum(target - draft, 0)):
    """Return n draws of three tokens."""
    draws = []
    for _ in range(n):
        tokens = [prefix[-1]]
        while len(tokens) < 4:
            tokens.append(one_round(tokens[-1], residual))
        draws.append(tokens[1:])
    return draws


def test_speculation_is_lossless(outrider_audit):
    outrider_audit.sampler(sample, prefixes=[[0], [1], [2]], law=law, num_draws=1000)


def test_a_wrong_residual_is_found(outrider_audit):
    def wrong(prefix, n):
        return sample(prefix, n, residual=lambda target, _draft: target)

    with pytest.raises(pytest.fail.Exception, match="is not what the target would have said"):
        outrider_audit.sampler(wrong, prefixes=[[0], [1], [2]], law=law, num_draws=1000)
