"""The page for people: says the verdict, and lets nothing from a certificate act."""

from dataclasses import replace
from xml.etree import ElementTree

from test_certificate import CONTROLS, EVIDENCE, certificate

from outrider.audit.certificate import Control
from outrider.audit.evidence import Equality, Fit
from outrider.audit.page import page
from outrider.audit.statistics import Cells


def test_the_page_says_what_the_certificate_says():
    text = page(certificate().to_json())
    for said in ("<b>pass</b>", "first token", "Negative control", "found out, as it must be", "outrider audit check"):
        assert said in text
    assert "src=" not in text
    assert "href=" not in text
    assert "<script" not in text


def test_every_verdict_has_a_page():
    wrong = Equality("greedy", 2, 1, ("prompt 1, token 3",))
    for made in (certificate((wrong,)), certificate(controls=()), certificate(())):
        assert f"<b>{made.judge().verdict}</b>" in page(made.to_json())
    assert "prompt 1, token 3" in page(certificate((wrong,)).to_json())


def test_a_check_that_looked_at_nothing_says_so():
    assert "nothing was looked at" in page(certificate((Equality("sampled answers", 0, 0, ()),)).to_json())
    assert "nothing was looked at" not in page(certificate().to_json())


def test_what_stands_in_a_certificate_is_text():
    evil = "<script>alert(1)</script>"
    made = certificate(
        (*EVIDENCE, Equality(evil, 1, 1, (evil,))),
        (replace(CONTROLS[0], name=evil),),
        subject={evil: {evil: [evil]}},
        notes=(evil,),
        command=evil,
    )
    assert "<script" not in page(made.to_json())


def test_the_picture_of_a_fit_is_well_formed():
    text = page(certificate().to_json())
    start = text.index("<svg")
    ElementTree.fromstring(text[start : text.index("</svg>") + 6])


def test_a_page_without_chance_speaks_of_none_and_has_one_table_of_wrong_engines():
    controls = tuple(Control(f"wrong {number}", (Equality("three tokens", 2, 1),)) for number in range(3))
    text = page(certificate((Equality("rule token", 3, 0),), controls, kind="exact").to_json())
    assert "Holm" not in text
    assert "The bars" not in text
    assert text.count("Negative control") == 1
    assert text.count("<th>looked at</th>") == 2
    assert "wrong 2" in text
    assert "Each was <b>found out, as it must be</b>" in text
    missed = (*controls, Control("<right>", (Equality("three tokens", 2, 0),)))
    assert "Not found out: <b>&lt;right&gt;</b>" in page(certificate(controls=missed).to_json())


def test_a_fit_of_single_cells_has_no_picture():
    assert "<svg" not in page(certificate((Fit("certain", (Cells((9,), (1.0,)),)),), ()).to_json())
