"""The server with a draft, audited beside the server without one as any other server would be."""

from datetime import datetime, timezone

from toy_server import serving, toy_llm

from outrider.audit.endpoint.certify import EndpointAudit, Surroundings
from outrider.audit.endpoint.client import Server
from outrider.audit.endpoint.plan import Plan
from outrider.backends.toy import TableLM, ToyBackend
from outrider.models.tokenizer import byte_level_alphabet

ALPHABET = list(byte_level_alphabet())
LETTERS, SIZE = [ALPHABET.index(letter) for letter in "abc"], len(ALPHABET) + 3
PLAN = Plan(prompts=("abcabca", "cab"), total_variation=0.3, budget=600, sampled_tokens=6, greedy_tokens=12)


def backend():
    """Return a model of three letters, whose chances turn with the last token."""

    def weights(last):
        row = [0] * SIZE
        for place, letter in enumerate(LETTERS):
            row[letter] = (6, 3, 2)[(place + last) % 3]
        return tuple(row)

    return ToyBackend(TableLM(tuple(map(weights, range(SIZE))), weights(0)), 400)


def test_our_own_server_passes():
    with (
        serving(toy_llm("ngram", backend=backend())) as (with_draft, _),
        serving(toy_llm(None, backend=backend())) as (without, _),
    ):
        now = datetime(2026, 11, 30, tzinfo=timezone.utc)
        around = Surroundings(lambda _: None, lambda: now, {}, seed=1)
        servers = (Server(base_url=f"{url}/v1", concurrency=4) for url in (with_draft, without))
        audit = EndpointAudit(*servers, None, PLAN, around)
        try:
            certificate = audit.run(lambda _: None, "")
        finally:
            audit.close()
    assert certificate.judge().verdict == "pass", "\n".join(certificate.notes)
    named = {evidence.name for evidence in certificate.evidence}
    assert {"sampled answers", "tokens and their reported law", "greedy answers", "seed", "stop", "logprobs"} <= named
