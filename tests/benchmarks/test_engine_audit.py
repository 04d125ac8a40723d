"""The smallest models there are, and the audit of an engine that draws in another process."""

import numpy as np
import pytest

from benchmarks.engine_audit import audit, coin_law, greedy, logit_gap
from benchmarks.peers.coin_models import DRAFT_CHANCE, TARGET_CHANCE, VOCAB_SIZE, A, B, write_coin
from outrider.audit.certificate import check
from outrider.backends.base import Rows
from outrider.engine.loading import load_model

CHANCES = {"target": TARGET_CHANCE, "draft": DRAFT_CHANCE}


@pytest.fixture(scope="module")
def coins(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coins")
    for name, chance in CHANCES.items():
        write_coin(folder / f"{name}.gguf", chance)
    return {name: load_model(folder / f"{name}.gguf", threads=1) for name in CHANCES}


def test_coins_have_the_law_that_they_are_said_to_have(coins):
    for name, chance in CHANCES.items():
        backend = coins[name].backend
        for prefix in ([A], [B, A, B], [0, 7, A, A]):
            logits = backend.forward([Rows(backend.open_sequence(), prefix)])[0].astype(np.float64)
            probs = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
            assert probs[A] == pytest.approx(chance, abs=2e-3)
            assert probs[A] + probs[B] == pytest.approx(1, abs=1e-12)
    assert coin_law(1.0)[[A, B]] == pytest.approx([0.9, 0.1])
    assert coin_law(2.0)[[A, B]] == pytest.approx([0.75, 0.25])
    assert coins["target"].vocab_size == VOCAB_SIZE == len(coin_law(1.0))


class FakeEngine:
    """Draws coins in this process."""

    def __init__(self, chance, draft="draft"):
        self.chance, self.draft = chance, draft
        self.rng = np.random.default_rng(1)

    def __call__(self, prefix, num):
        return np.where(self.rng.random((num, 4)) < self.chance, A, B).tolist()


@pytest.mark.parametrize(("chance", "verdict"), [(0.9, "pass"), (0.8, "fail")])
def test_an_engine_is_held_against_the_law(chance, verdict):
    certificate = audit(
        FakeEngine(chance),
        None,
        [],
        model=None,
        num=4000,
        temperature=1.0,
        subject={"engine": "fake"},
        versions={},
        command="",
    )
    document = certificate.to_json()
    assert document["verdict"] == verdict
    assert check(document) == []


class Greedy:
    """Says one thing."""

    def __init__(self, *tokens):
        self.tokens = tokens

    def greedy(self, prefixes):
        return [list(self.tokens) for _ in prefixes]


def test_near_ties_are_told_from_errors(coins):
    model = coins["draft"]  # for which a and b are alike
    assert greedy(Greedy(A, A), Greedy(A, A), [[A]], model).failures == 0
    tie = greedy(Greedy(A, A), Greedy(A, B), [[A]], model)
    assert tie.failures == 0
    assert "by 0.000 nats" in tie.examples[0]
    error = greedy(Greedy(A, A), Greedy(A, B), [[A]], coins["target"])
    assert error.failures == 1
    assert logit_gap(coins["target"], [A], A, B) == pytest.approx(np.log(9), abs=2e-2)
