"""The client: patient, frugal, and trusting nothing."""

import json
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import httpx
import pytest
from lettered_server import PROMPTS, ToyModel, Web, serving, wire

from outrider.audit.endpoint.client import Client, Meter, Server
from outrider.audit.endpoint.questions import Answer, Place, Question
from outrider.errors import BudgetError, EndpointError, RefusedError, UsageError

NOW = datetime(2026, 11, 30, tzinfo=timezone.utc)
QUESTION = Question("ab", 4, temperature=0.0)
GOOD = wire(Answer("abc", None, "length", 2, 3), chat=False)


class Scripted(httpx.BaseTransport):
    """Answers what it is told to, in turn; the last again and again."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []

    def handle_request(self, request):
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, httpx.Response) else httpx.Response(200, json=reply)


def client(*replies, waits=None, max_requests=100, **fields):
    """Return a client whose first question, about the API, has been answered."""
    transport = Scripted(GOOD, *replies)
    sleep = (lambda _: None) if waits is None else waits.append
    server = Server(base_url="http://toy/v1", **{"model": "toy", **fields})
    made = Client(server, Meter(max_requests), sleep=sleep, now=lambda: NOW, transport=transport)
    return made, transport


@pytest.mark.parametrize(
    ("header", "waited"),
    [
        ("7", 7.0),
        (format_datetime(NOW + timedelta(seconds=30), usegmt=True), 30.0),
        (format_datetime(NOW - timedelta(seconds=30), usegmt=True), 0.5),
        ("soon", 0.5),
        ("-3", 0.5),
        ("nan", 0.5),
        ("Mon, 01 Jan 2020 00:00:00 +99999999999999999", 0.5),
    ],
)
def test_it_waits_as_long_as_a_server_that_limits_rates_asks(header, waited):
    waits = []
    one, transport = client(httpx.Response(429, headers={"Retry-After": header}), GOOD, waits=waits)
    assert one.ask(QUESTION).text == "abc"
    assert waits == [waited]
    assert len(transport.requests) == 3


def test_it_does_not_wait_for_hours():
    one, _ = client(httpx.Response(429, headers={"Retry-After": "86400"}))
    with pytest.raises(EndpointError, match="asks to wait for 86400 s, the limit is 120"):
        one.ask(QUESTION)


@pytest.mark.parametrize("reply", [httpx.Response(503), httpx.ReadTimeout("slow"), httpx.ConnectError("refused")])
def test_it_tries_again_after_longer_and_longer_waits_and_gives_up(reply):
    waits = []
    one, transport = client(reply, waits=waits)
    with pytest.raises(EndpointError, match="failed 6 times"):
        one.ask(QUESTION)
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]
    assert len(transport.requests) == 1 + 6
    assert one._meter.retries == 5
    assert one._meter.waited_s == 15.5


def test_it_sends_no_more_than_agreed_on():
    one, transport = client(GOOD, max_requests=3)
    with pytest.raises(BudgetError, match="the 3 requests allowed are used up"):
        one.ask_many([QUESTION] * 10)
    assert len(transport.requests) == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (httpx.Response(200, text="<html>"), "the answer is '<html>'; it must be a JSON object"),
        (httpx.Response(200, text="[" * 100_000), "it must be a JSON object"),
        ([], "it must be a JSON object"),
        ({"choices": []}, "for choices; it must be a list of at least one"),
        ({"choices": [None]}, r"choices\[0\] is None"),
        ({"choices": [{"text": 7}]}, "has 7 for its text"),
        ({"choices": [{"message": {"content": None}}]}, "has None for its text"),
        ({"choices": [{"text": "a", "logprobs": "x"}]}, "logprobs is 'x'"),
        (
            {"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": []}}]},
            "lists of different lengths",
        ),
        (
            {"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [0.7]}}]},
            "has 0.7 for a log prob",
        ),
        (
            httpx.Response(
                200, text='{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [NaN]}}]}'
            ),
            "has nan for a log prob",
        ),
        ({"choices": [{"text": "a", "logprobs": {"content": [{"token": 3}]}}]}, "has 3 for a token"),
        ({"choices": [{"text": "a"}], "usage": {"completion_tokens": -1}}, "has -1 for completion_tokens"),
        (httpx.Response(200, content=b" " * (9 << 20)), "more than 8388608 bytes"),
    ],
)
def test_garbage_is_an_error_that_says_what_is_wrong(reply, message):
    one, _ = client(reply)
    with pytest.raises(EndpointError, match=message) as caught:
        one.ask(QUESTION)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_refusal_says_what_the_server_says():
    one, _ = client(httpx.Response(400, json={"error": {"message": "seed is not supported"}}))
    with pytest.raises(RefusedError, match="answers 400 to completions: 'seed is not supported'"):
        one.ask(QUESTION)


@pytest.mark.parametrize(
    "url",
    [
        *("", "toy", "ftp://toy/v1", "http://", "http://me:secret@toy/v1", "http://toy/v1?key=1"),
        *("http://a..b/v1", "http://xn--/v1", f"http://{'a' * 70}/v1"),
    ],
)
def test_urls_that_are_none_are_refused(url):
    with pytest.raises(UsageError):
        Client(Server(base_url=url), Meter(5), sleep=lambda _: None, now=lambda: NOW)


@pytest.mark.parametrize("key", ["sésame", "a\nb", "\udcff"])
def test_keys_that_no_header_may_hold_are_refused(key):
    with pytest.raises(UsageError, match="the API key holds what no HTTP header may"):
        Client(Server(base_url="http://toy/v1", api_key=key), Meter(5), sleep=lambda _: None, now=lambda: NOW)


def test_a_model_whose_name_is_no_text_is_asked_for_as_it_is_spelled():
    transport = Scripted(httpx.Response(200, content=rb'{"data": [{"id": "\ud800"}]}'), GOOD)
    one = Client(Server(base_url="http://toy/v1"), Meter(5), sleep=lambda _: None, now=lambda: NOW, transport=transport)
    assert one.model == "\ud800"
    assert rb'"\ud800"' in transport.requests[1].content


def test_numbers_and_bytes_that_are_none_break_nothing():
    values = '{"tokens": ["a"], "token_logprobs": [-1' + "0" * 400 + "]}"
    one, _ = client(httpx.Response(200, text=f'{{"choices": [{{"text": "a", "logprobs": {values}}}]}}'))
    assert one.ask(QUESTION).places == (Place("a", -float("inf")),)
    place = '{"token": "\\ufffd", "logprob": -1, "bytes": ' + "[" * 900 + "]" * 900 + "}"
    one, _ = client(httpx.Response(200, text=f'{{"choices": [{{"text": "a", "logprobs": {{"content": [{place}]}}}}]}}'))
    assert one.ask(QUESTION).places == (Place("\ufffd", -1.0),)


def test_a_server_without_models_needs_a_name():
    transport = Scripted({"data": []})
    with pytest.raises(EndpointError, match="lists no model"):
        Client(Server(base_url="http://toy/v1"), Meter(5), sleep=lambda _: None, now=lambda: NOW, transport=transport)


@pytest.mark.parametrize("chat_only", [False, True])
def test_both_apis_over_a_real_connection(chat_only):
    model = ToyModel()
    web = Web(model, chat_only=chat_only, most_logprobs=5)
    with serving(web) as url:
        server = Server(base_url=url, api_key="key", extra={"top_k": 0})
        meter = Meter(50)
        one = Client(server, meter, sleep=lambda _: None, now=lambda: NOW)
        answers = one.ask_many([Question(prompt, 5, temperature=0.0, logprobs=20) for prompt in PROMPTS])
        one.close()
    assert one.model == "toy-model"
    assert one.api == ("chat" if chat_only else "completions")
    assert [answer.text for answer in answers] == [model.ask(Question(prompt, 5, 0.0)).text for prompt in PROMPTS]
    for answer in answers:
        assert len(answer.places) == answer.completion_tokens
        assert len(answer.places[0].top) == 5  # as many as the server gives, when it will not give 20
        assert answer.places[0].logprob == max(answer.places[0].top.values())
    assert set(web.keys) == {"Bearer key"}
    assert all(body["top_k"] == 0 for body in web.seen)
    assert meter.requests == len(web.seen) + 1  # and the list of models
    assert meter.tokens > 0


def test_a_token_cut_within_a_character_keeps_its_bytes():
    place = {
        "token": "\ufffd",
        "bytes": [240],
        "logprob": -1.0,
        "top_logprobs": [{"token": "\ufffd", "bytes": [159], "logprob": None}],
    }
    document = {"choices": [{"text": "\ufffd", "logprobs": {"content": [place]}}]}
    one, _ = client(json.loads(json.dumps(document)))
    [read] = one.ask(QUESTION).places
    assert read == Place("\ufffd[240]", -1.0, {"\ufffd[159]": -float("inf")})
