"""The proof of :mod:`test_shaper` has teeth: each wrong way to apply settings to drafts is told from the right one."""

from dataclasses import replace

import numpy as np
import pytest
from processed import (
    DRAFT,
    DRAFTERS,
    PROMPT,
    SETTINGS,
    TARGET,
    answer_law,
    constant,
    dense,
    fractions,
    make_shaper,
    params,
    rows,
    wanted_law,
)
from shaper_mutants import MUTANTS, RemembersDrafts

from outrider.errors import UsageError
from outrider.sampling import LawShaper, target_probs
from outrider.types import Draft
from outrider.verification import verify_point_mass, verify_token
from outrider.verification.exact import outcomes, total_variation

ALL = {**SETTINGS, "bias and repetition": params(logit_bias={0: 1.5, 3: -1.5}, repetition_penalty=2.0)}


def error(law, setting, num_tokens):
    return float(total_variation(law, wanted_law(ALL[setting], num_tokens)))


def all_laws(setting, kind):
    for make_drafter, rules in DRAFTERS.values():
        for rule in rules:
            yield answer_law(ALL[setting], make_drafter, rule, num_tokens=3, kind=kind)


@pytest.mark.parametrize(("mutant", "setting"), MUTANTS, ids=lambda case: getattr(case, "__name__", case))
def test_every_mutant_is_caught(mutant, setting):
    """Or comes to a grammar's end with a token that it does not allow, which is an error."""
    try:
        worst = max(error(law, setting, 3) for law in all_laws(setting, mutant))
    except UsageError as problem:
        assert "response_format" in str(problem)  # noqa: PT017 - either is enough
    else:
        assert worst > 1e-3


@pytest.mark.parametrize("setting", {setting for _, setting in MUTANTS})
def test_the_right_shaper_passes_the_same_test(setting):
    assert max(error(law, setting, 3) for law in all_laws(setting, LawShaper)) < 1e-12


@pytest.mark.parametrize(("kind", "is_exact"), [(LawShaper, True), (RemembersDrafts, False)])
def test_a_shaper_that_lasts_from_round_to_round_forgets_rejected_drafts(kind, is_exact):
    """The other proofs make a shaper anew each round; here one goes through a whole answer."""
    one = SETTINGS["frequency_penalty"]

    def experiment(coins):
        shaper, prefix = make_shaper(one, kind), PROMPT
        while len(prefix) < len(PROMPT) + 4:
            draft = Draft((2, 2, 1))
            shaped = shaper.shape(rows(TARGET, prefix, draft.token_ids), draft.token_ids)
            result = verify_point_mass(draft, fractions(target_probs(shaped, one)), coins)
            emitted = (*draft.token_ids[: result.num_accepted], result.next_token_id)
            prefix = (*prefix, *emitted)
            for token_id in emitted:
                shaper.advance(token_id)
        return prefix[len(PROMPT) :][:4]

    assert (error(outcomes(experiment), "frequency_penalty", 4) < 1e-12) == is_exact


@pytest.mark.parametrize("setting", ["repetition_penalty", "allowed_token_ids", "min_tokens", "everything"])
def test_a_draft_law_told_raw_but_drawn_shaped_is_caught(setting):
    """transformers#47932: processed for drawing, raw for verification."""
    one = SETTINGS[setting]

    def lying(one):
        propose = dense(one)

        def lie(prefix, count, coins):
            draft = propose(prefix, count, coins)
            raw = [rows(DRAFT, (*prefix, *draft.token_ids[:row]), ()) for row in range(len(draft))]
            told = [fractions(target_probs(logits, params()))[0] for logits in raw]
            return replace(draft, probs=np.array(told).reshape(draft.probs.shape))

        return lie

    assert error(answer_law(one, lying, verify_token, num_tokens=3), setting, 3) > 1e-3


def test_masks_after_the_limits_are_another_law():
    """Allowed tokens must be singled out before ``top_k`` counts: else a row may lose all of them."""
    one = params(top_k=1, allowed_token_ids=(1, 2))
    logits = np.array([[3.0, 2.0, 1.0, 0.0]], dtype=np.float32)
    assert target_probs(make_shaper(one).shape(logits, ()), one).tolist() == [[0, 1, 0, 0]]
    late = target_probs(logits, params(top_k=1))[0]
    assert late[[1, 2]].sum() == 0


def test_constant_drafts_are_proposed_as_they_are():
    assert constant(2, 2, 1)(None)(PROMPT, 2, None).token_ids == (2, 2)
