"""The audit of a pair: a right engine passes, a wrong one is found out, and an audit that was broken off goes on."""

import json
from dataclasses import replace

import pytest
from toy_llm import toy_tokenizer
from toy_pairs import WISH, audit, toy_draft

from outrider.audit.certificate import check
from outrider.audit.completeness import missing
from outrider.drafters.translated_backend import OwnTokensBackend
from outrider.errors import UsageError
from outrider.sampling import SamplingParams


def found(certificate):
    judgement = certificate.judge()
    return [one.name for one, bad in zip(certificate.evidence, judgement.rejected, strict=True) if bad]


@pytest.mark.parametrize(
    ("draft", "options"),
    [
        ("model", {"rule": "token"}),
        ("model", {"rule": "coupled"}),
        ("model", {"rule": "token", "draft_tree": 4}),
        ("model", {"rule": "block", "params": SamplingParams(temperature=0.7, top_p=0.9, top_k=30)}),
    ],
)
def test_the_engine_passes_and_its_wrong_variant_does_not(draft, options):
    certificate = audit([toy_draft()], **options)
    judgement = certificate.judge()
    assert (judgement.verdict, found(certificate)) == ("pass", [])
    assert certificate.controls[0].has_failed(certificate.claim.level)
    document = json.loads(json.dumps(certificate.to_json()))
    assert check(document) == []
    assert missing(certificate) == []
    assert {"greedy text", "sampled text with a seed"} <= {one.name for one in certificate.evidence}
    assert all(one.num > 0 for one in certificate.evidence)
    lengths = certificate.settings["draft lengths"]
    assert max(map(int, lengths)) == WISH.lengths[0]
    assert sum(lengths.values()) >= WISH.budget.draws


def test_a_cascade_of_a_model_and_lookups_passes():
    assert audit([toy_draft(), "ngram"], rule="token").judge().verdict == "pass"


def test_a_draft_of_another_vocabulary_passes_token_by_token_where_there_is_a_penalty(monkeypatch):
    monkeypatch.setattr(OwnTokensBackend, "forward", None)  # to write text would end the drafts, and void the audit
    draft = replace(toy_draft(), tokenizer=toy_tokenizer(swapped=True))
    certificate = audit([draft], rule="token", params=SamplingParams(temperature=1.0, presence_penalty=0.5))
    assert (certificate.judge().verdict, found(certificate)) == ("pass", [])
    assert certificate.controls[0].has_failed(certificate.claim.level)
    assert missing(certificate) == []
    assert certificate.settings["params"]["presence_penalty"] == 0.5


def test_too_few_draws_are_void_or_inconclusive_never_a_pass():
    few = audit([toy_draft()], budget=replace(WISH.budget, draws=40)).judge()
    assert few.verdict == "void"
    short = audit([toy_draft()], claim=replace(WISH.claim, total_variation=0.01)).judge()
    assert short.verdict == "inconclusive"
    assert "observations are needed" in short.reason


def test_an_audit_that_was_broken_off_goes_on_where_it_was(tmp_path, monkeypatch):
    whole = audit([toy_draft()], rule="token").to_json()
    state = tmp_path / "state.json"

    def break_off(text):
        if text.startswith("1 of 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit([toy_draft()], rule="token", state=state, report=break_off)
    lines = []
    resumed = audit([toy_draft()], rule="token", state=state, report=lines.append).to_json()
    assert resumed == whole
    assert not any("comparing" in line or line.startswith("1 of 2") for line in lines)
    with pytest.raises(UsageError, match="another audit"):
        audit([toy_draft()], rule="block", state=state)
    monkeypatch.setattr("outrider.audit.pair.versions", lambda: {"outrider": "another"})
    with pytest.raises(UsageError, match="another audit"):
        audit([toy_draft()], rule="token", state=state)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda document: document.pop("tallies"),
        lambda document: document["tallies"][0].update(tokens=-1),
        lambda document: document["tallies"][0]["first"][0].append(3),
        lambda document: document["tallies"][0].update(every=[0]),
        lambda document: document["tallies"][0]["rates"].update({"1": [1, 2]}),
        lambda document: document["tallies"][0].update(at_checkpoints=[[1]]),
        lambda document: document["tallies"][0].update(drafted={"one": 1}),
        lambda document: document["tallies"][0].update(drafted={"1": -1}),
        lambda document: document["equalities"].append({"kind": "fit", "name": "x", "groups": []}),
        lambda document: document.update(num_rows=1.5),
    ],
)
def test_a_state_that_is_none_is_refused(spoil, tmp_path, spoilable):
    document = json.loads(spoilable)
    spoil(document)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(document))
    with pytest.raises(UsageError, match="is no state of an audit"):
        audit([toy_draft()], rule="token", budget=replace(WISH.budget, draws=40), state=state)


@pytest.fixture(scope="module")
def spoilable(tmp_path_factory):
    state = tmp_path_factory.mktemp("audit") / "state.json"
    audit([toy_draft()], rule="token", budget=replace(WISH.budget, draws=40), state=state)
    return state.read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"params": SamplingParams()}, "temperature is 0"),
        ({"budget": replace(WISH.budget, draws=1)}, "draws is 1"),
        ({"budget": replace(WISH.budget, num_tokens=0)}, "num_tokens is 0"),
        ({"lengths": (0,)}, "num_speculative_tokens is 0"),
        ({"batches": ()}, "batches is 0"),
    ],
)
def test_what_cannot_be_audited_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        audit([toy_draft()], **changes)
    with pytest.raises(UsageError, match="needs something that drafts"):
        audit("none")
