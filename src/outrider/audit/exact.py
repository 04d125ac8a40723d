"""``outrider audit exact``: the proofs, on toy models whose every random decision is enumerated.

No chance is left: a law is the target's or it is not. Every rule is proven with every kind of draft, whole answers of
the engine with every kind of draft and of parameter, and the wrong variants must fail the same proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from outrider.audit.certificate import Certificate, Claim, Control
from outrider.audit.evidence import Equality
from outrider.audit.provenance import versions
from outrider.audit.toy_engine import CHAIN, CHOSEN, PARAMETERS, TREE, answers_are_equal, law_of_answer
from outrider.audit.toy_laws import PAIRS
from outrider.audit.wrong_variants import MUTANTS
from outrider.types import Coins, Probs, TreeDraft
from outrider.verification import verify_block, verify_point_mass, verify_token, verify_tree
from outrider.verification.exact import (
    Drafter,
    Law,
    Prefix,
    Rule,
    SequenceLaw,
    TreeDrafter,
    dense_drafter,
    emitted_law,
    point_mass_drafter,
    sequence_law,
    speculative_round,
    total_variation,
    tree_round,
)

_RULES: dict[str, Rule] = {"token": verify_token, "block": verify_block, "point_mass": verify_point_mass}
# Under either rule trees are verified as several candidates, and chosen tokens as point masses.
_ANSWERS = (("token", CHAIN), ("block", CHAIN), ("token", TREE), ("token", CHOSEN))
_TELLING = ("unlike", "four tokens")  # pairs on which the wrong variants are tried
_ROUNDING = 1e-6  # of float32 logits, in whole answers of the engine
Report = Callable[[str], None]


def audit_exact(*, command: str, now: str, report: Report = lambda _text: None) -> Certificate:
    """Run every proof and every wrong variant; takes some seconds.

    Args:
        command: That runs it again.
        now: The time, for the certificate.
        report: Is told how it goes, a line at a time.
    """
    evidence = []
    for name, rule in _RULES.items():
        report(f"proving the rule {name}")
        evidence.append(_prove_chains(name, rule))
    report("proving trees: several candidates, drawn without replacement and chosen")
    evidence.append(_prove_trees("candidates drawn without replacement", _drawn))
    evidence.append(_prove_trees("candidates chosen without drawing", _likeliest))
    report("proving whole answers of the engine, with every kind of draft and of parameter")
    answers = _prove_answers()
    evidence += answers
    report(f"trying {len(MUTANTS)} wrong variants")
    controls = tuple(_try(name) for name in MUTANTS)
    return Certificate(
        kind="exact",
        created=now,
        command=command,
        subject={"engine": "Outrider, on toy models with 3 and 4 tokens"},
        settings={"enumerated": {one.name: list(PARAMETERS if one in answers else PAIRS) for one in evidence}},
        versions=versions(),
        claim=Claim(),
        evidence=tuple(evidence),
        controls=controls,
        notes=(
            "Every random decision is enumerated, in rational arithmetic; whole answers of the engine are compared to "
            f"within {_ROUNDING:g}, the rounding of their logits.",
            "Toy models say nothing of the kernels that real ones run on; outrider audit pair looks at those.",
        ),
    )


def _prove_chains(name: str, rule: Rule) -> Equality:
    """Prove a rule on every pair of toy models: as many rounds as it takes to emit three tokens."""
    wrong = []
    for pair, (target, draft) in PAIRS.items():
        drafter = point_mass_drafter(partial(_unrolled, draft)) if name == "point_mass" else dense_drafter(draft, 2)
        if _distance(target, drafter, rule) != 0:
            wrong.append(pair)
    return Equality(f"rule {name}", len(PAIRS), len(wrong), tuple(wrong))


def _distance(target: Law, drafter: Drafter, rule: Rule) -> Fraction:
    return total_variation(emitted_law(speculative_round(target, drafter, rule), 3), sequence_law(target, 3))


def _unrolled(law: Law, prefix: Prefix) -> Sequence[int]:
    tokens: Prefix = ()
    for _ in range(2):
        tokens = (*tokens, int(np.argmax(law(prefix + tokens))))
    return tokens


Grow = Callable[[Probs, Coins], tuple[list[int], Any]]


def _drawn(law: Probs, coins: Coins) -> tuple[list[int], Any]:
    """Draw two different tokens, the second from what is left of the law."""
    weights = law.copy()
    token_ids: list[int] = []
    while len(token_ids) < 2 and weights.sum() > 0:
        token_ids.append(coins.draw(weights))
        weights[token_ids[-1]] = 0
    return token_ids, law


def _likeliest(law: Probs, _coins: Coins) -> tuple[list[int], Any]:
    return sorted(range(len(law)), key=lambda token_id: -law[token_id])[:2], None


def _tree_drafter(law: Law, grow: Grow) -> TreeDrafter:
    """Return a drafter of two candidates, and of one more token after the first of them."""

    def propose(prefix: Prefix, coins: Coins) -> TreeDraft:
        token_ids, told = grow(law(prefix), coins)
        below, told_below = grow(law((*prefix, token_ids[0])), coins)
        probs: list[Any] = [told, told_below, *[None] * (len(token_ids) - 1 + len(below))]
        return TreeDraft((*token_ids, *below), (*[-1] * len(token_ids), *[0] * len(below)), tuple(probs))

    return propose


def _prove_trees(name: str, grow: Grow) -> Equality:
    wrong = []
    for pair, (target, draft) in PAIRS.items():
        emitted = emitted_law(tree_round(target, _tree_drafter(draft, grow), verify_tree), 2)
        if emitted != sequence_law(target, 2):
            wrong.append(pair)
    return Equality(f"trees: {name}", len(PAIRS), len(wrong), tuple(wrong))


def _prove_answers() -> list[Equality]:
    """Compare the laws of whole answers, and seeded texts, with and without each kind of draft."""
    wrong: dict[tuple[str, str], list[str]] = {kind: [] for kind in _ANSWERS}
    for name, params in PARAMETERS.items():
        plain = law_of_answer(params, "token", None)
        for (rule, draft), found in wrong.items():
            if _apart(plain, law_of_answer(params, rule, draft)) > _ROUNDING:
                found.append(name)
    proven = {f"answers by {rule}, of {draft}": bad for (rule, draft), bad in wrong.items()}
    for draft in (CHAIN, TREE, CHOSEN):
        bad = [name for name, params in PARAMETERS.items() if not answers_are_equal(params, draft)]
        proven[f"seeded answers by coupled, bit for bit, of {draft}"] = bad
    return [Equality(name, len(PARAMETERS), len(bad), tuple(bad)) for name, bad in proven.items()]


def _apart(one: SequenceLaw, other: SequenceLaw) -> float:
    return float(total_variation(one, other))


def _try(name: str) -> Control:
    failures = 0
    for pair in _TELLING:
        target, draft = PAIRS[pair]
        failures += emitted_law(MUTANTS[name](target, draft, 2), 3) != sequence_law(target, 3)
    return Control(name, (Equality("three tokens", len(_TELLING), failures),))
