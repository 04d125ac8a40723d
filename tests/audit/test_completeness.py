"""A certificate of a pair from which evidence was taken away does not hold."""

from dataclasses import replace

import pytest

from outrider.audit.certificate import Certificate, Claim, Control, check
from outrider.audit.completeness import missing
from outrider.audit.evidence import Equality
from outrider.audit.pair import GREEDY, SEEDED
from outrider.audit.sampled import ROWS
from outrider.audit.sequential import NUM_BINS
from outrider.audit.tally import Tally, evidence_of, joint_name


def evidence(one_side=50):
    tally = Tally(([one_side, 100 - one_side], [0.5, 0.5]), ([50, 50], [0.5, 0.5]))
    tally.directed, tally.every, tally.tokens = [100, *[0] * (NUM_BINS - 1)], [200, *[0] * (NUM_BINS - 1)], 200
    tally.checkpoint()
    return evidence_of([tally], 2)


def certificate():
    others = tuple(Equality(name, 3, 0) for name in (GREEDY, SEEDED, ROWS))
    claim = Claim(shown_by=joint_name(2))
    wrong = (Control("wrong", evidence()),)
    return Certificate("pair", "now", "", {}, {"num_tokens": 2}, {}, claim, (*others, *evidence()), wrong)


def test_a_whole_certificate_lacks_nothing():
    assert missing(certificate()) == []
    assert missing(replace(certificate(), kind="exact", evidence=())) == []


@pytest.mark.parametrize("number", range(len(certificate().evidence)))
def test_whatever_is_left_out_is_missed(number):
    whole = certificate()
    less = replace(whole, evidence=(*whole.evidence[:number], *whole.evidence[number + 1 :]))
    assert check(less.to_json()) == []  # the sums still come out
    assert missing(less) == [f"evidence lacks {whole.evidence[number].name!r}"]


def test_a_control_of_other_evidence_is_missed():
    less = replace(certificate(), controls=(Control("wrong", (Equality("anything", 1, 1),)),))
    assert len(missing(less)) == 7


def test_numbers_of_draws_that_differ_and_another_claim_are_told():
    whole = certificate()
    fewer = tuple(replace(one, cases=199) if one.name.startswith("tokens that") else one for one in whole.evidence)
    assert "different numbers of draws" in missing(replace(whole, evidence=fewer))[0]
    unclaimed = replace(whole, claim=Claim(shown_by=None))
    assert missing(unclaimed)[0] == "claim.shown_by is '' and should be 'next 2 tokens together'"
