"""Which verification rule applies to which draft. Every rule keeps the target's law; they differ in what else they do.

* ``"token"`` weighs each draft token's probability under the draft against that under the target.
* ``"block"`` weighs whole beginnings of the draft, and accepts more.
* ``"coupled"`` draws draft and target with the same noise, and accepts a little less. The text is then a function of
  the prompt, the seed and the target alone: it does not depend on the draft, nor on there being one.
* ``"auto"``: ``"coupled"`` for a request with a seed, which wants its text reproducible, ``"block"`` for others.

Greedy requests need none of them. A draft without probabilities was chosen, not drawn: under ``"token"`` and
``"block"`` it is verified as point masses, which is what both come to; so are the tokens of a chain beyond its laws. A
draft that branches is verified under them by the rule for several candidates: without replacement where they were
drawn, as a set of point masses where chosen. What was drawn has no say in which rule it is: see docs/lossless.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import get_close_matches
from typing import get_args

from outrider.engine.outputs import Method
from outrider.engine.sequence import Rule, Sequence
from outrider.errors import UsageError
from outrider.sampling import SamplingParams, TargetLaw
from outrider.types import DraftCoins, Proposal, TreeDraft, Verdict
from outrider.verification import (
    Purpose,
    RaceCoins,
    verify_block,
    verify_greedy,
    verify_point_mass,
    verify_token,
    verify_tree,
    verify_tree_greedy,
)

_VERIFIERS = {
    "token": verify_token,
    "block": verify_block,
    "point_mass": verify_point_mass,
    "coupled": verify_point_mass,
}


def parse_rule(name: str) -> Rule:
    """Return the rule of a name.

    Raises:
        UsageError: There is none.
    """
    rules: tuple[Rule, ...] = get_args(Rule)
    for rule in rules:
        if rule == name:
            return rule
    near = "".join(f"; did you mean {match!r}?" for match in get_close_matches(str(name), rules, n=1))
    raise UsageError(f"rule is {name!r}{near or ';'} it must be one of {', '.join(rules)}")


def verify(sequence: Sequence, draft: Proposal, law: TargetLaw, rule: Rule) -> Verdict:
    """Verify one sequence's draft.

    Args:
        sequence: Its method and tree are set, if there is anything to verify.
        draft: What its drafter proposed.
        law: The target's, at each draft position and after the last.
        rule: What the user asked for.
    """
    method = _method(sequence.params, draft, rule)
    if len(draft):
        sequence.method = method
    if isinstance(draft, TreeDraft):
        sequence.tree = max(sequence.tree or (), _widths(draft), key=sum)
        if method == "greedy":
            return verify_tree_greedy(draft, law.token_ids)
        if method == "coupled":
            draft = replace(draft, probs=(None,) * (len(draft) + 1))
        return verify_tree(draft, law.probs, coins(sequence, Purpose.VERIFY, rule))
    if method == "greedy":
        return verify_greedy(draft, law.token_ids)
    return _VERIFIERS[method](draft, law.probs, coins(sequence, Purpose.VERIFY, rule))


def _widths(draft: TreeDraft) -> tuple[int, ...]:
    """Return how many tokens a tree has at each depth."""
    depths = Counter(len(draft.path(node + 1)) for node in range(len(draft)))
    return tuple(depths[depth] for depth in sorted(depths))


def coins(sequence: Sequence, purpose: Purpose, rule: Rule) -> DraftCoins:
    """Return the random decisions of a sequence's next round."""
    position = len(sequence.token_ids)
    if _is_coupled(sequence.params, rule):
        return RaceCoins(sequence.coins, position)
    return sequence.coins.at(position, purpose)


def reads_laws(params: SamplingParams, rule: Rule) -> bool:
    """Return whether the laws that drafts were drawn from matter."""
    return not (params.is_greedy or _is_coupled(params, rule))


def _is_coupled(params: SamplingParams, rule: Rule) -> bool:
    return rule == "coupled" or (rule == "auto" and params.seed is not None)


def _method(params: SamplingParams, draft: Proposal, rule: Rule) -> Method:
    if params.is_greedy:
        return "greedy"
    if _is_coupled(params, rule):
        return "coupled"
    if isinstance(draft, TreeDraft):
        return "point_mass" if all(probs is None for probs in draft.probs) else "multi_draft"
    if draft.probs is None:
        return "point_mass"
    return "token" if rule == "token" else "block"
