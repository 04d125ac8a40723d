"""The contract with engines in other processes, held by a fake one."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.peers import compare, plot, tuning, worker
from benchmarks.peers.compare import OURS, Peer, closest, table
from benchmarks.peers.llama_cpp import Settings, _flags
from benchmarks.peers.piped import Piped
from benchmarks.peers.roster import ROSTER
from benchmarks.texts import Prompt
from outrider.metrics.paired import Answer, Turn

FAKE = f"""
import os, sys
sys.path.insert(0, {str(Path(worker.__file__).parent)!r})
from worker import Clock, serve

def load(settings):
    print("an engine that talks on stdout")
    if settings["target"] == "broken":
        sys.exit("no such model, says /home/of/its+makers/load.cpp:7")
    def answer(request):
        os.write(1, b"more talk\\n")
        if request["temperature"] == 9:
            sys.exit("too hot")
        times = iter((10.0, 10.5, 11.0, 12.5))
        clock = Clock(lambda: next(times))
        for count in (2, 1, 1):
            clock.see(count)
        return clock.reply(request["prompt_ids"][:1] + request["stop_ids"] + [request["max_tokens"], 5], 6, 3)
    return "fake 1.0", answer

serve(load)
"""


@pytest.fixture
def fake(tmp_path):
    """Start a worker with a target; its log is in the folder."""
    script = tmp_path / "fake_worker.py"
    script.write_text(FAKE)
    return lambda target="good": Piped([sys.executable, script], {"target": target}, tmp_path / "logs/fake.log", {})


def test_a_worker_answers_whatever_it_prints(fake, tmp_path):
    with fake() as process:
        assert process.version == "fake 1.0"
        for _ in range(2):
            answer = process.complete([7, 8, 9], 20, 0.0, [2])
            assert answer.token_ids == (7, 2, 20, 5)
            assert (answer.num_prompt_tokens, answer.num_first_tokens, answer.num_decoded) == (3, 2, 2)
            assert (answer.first_token_s, answer.decode_s, answer.tokens_per_s) == (0.5, 2.0, 1.0)
            assert (answer.counters.num_draft_tokens, answer.counters.num_accepted_tokens) == (6, 3)
    assert "an engine that talks on stdout" in (tmp_path / "logs/fake.log").read_text()


def test_a_worker_that_does_not_start_says_why(fake):
    with pytest.raises(RuntimeError, match=r"fake_worker\.py ended; .*no such model, says load\.cpp:7$"):
        fake("broken")


def test_a_worker_that_dies_says_why(fake):
    with fake() as process, pytest.raises(RuntimeError, match="too hot"):
        process.complete([1], 2, 9, [2])


class Ours:
    def encode(self, prompt):
        return [len(prompt)]


def test_a_peer_gets_our_tokens_and_the_limits():
    peer = Peer("peer", lambda *request: request, 1.0, Ours())
    assert peer.answer("four", 32) == ([4], 32, 1.0)


def test_the_table_says_how_many_times_as_fast_we_are():
    def turn(ours_s, theirs_s):
        answers = {name: Answer(tuple(range(21)), 5, 0.5, s) for name, s in ((OURS, ours_s), ("peer", theirs_s))}
        return Turn(Prompt("a", "code", "a"), answers)

    assert table("peer", [turn(1.0, 4.0)])["outrider_to_peer"]["median"] == 4.0
    short = Answer((1,), 5, 0.5, 0.0)
    assert table("peer", [Turn(Prompt("a", "code", "a"), {OURS: short, "peer": short})])["outrider_to_peer"] is None


def test_what_fails_is_told_and_the_others_go_on(monkeypatch):
    def start(*_):
        raise RuntimeError("it is not here")

    monkeypatch.setattr(compare, "start", start)
    document, saved = {}, []
    compare.measure(ROSTER[0], None, [], [0.0], Namespace(), document, lambda: saved.append(dict(document)))
    assert document == {"problem": "it is not here"}
    assert saved == [document]


def test_what_is_measured_is_kept_after_every_prompt(monkeypatch):
    answer = Answer(tuple(range(21)), 5, 0.5, 2.0)
    monkeypatch.setattr(compare, "start", lambda *_: ("fake 1.0", lambda *_: answer))
    monkeypatch.setattr(compare.Outrider, "answer", lambda *_: answer)
    prompts = [Prompt(name, "code", name) for name in "ab"]
    document, saved = {}, []
    arguments = Namespace(max_tokens=21)

    def save():
        measured = [document[key] for key in document if key.startswith("temperature")]
        saved.append([one["all"][OURS]["answers"] for one in measured])

    compare.measure(ROSTER[0], Ours(), prompts, [0.0, 1.0], arguments, document, save)
    assert saved == [[1], [2], [2, 1], [2, 2], [2, 2]]
    assert document["is_complete"]
    assert document["version"] == "fake 1.0"
    assert document["temperature 1"]["code"]["outrider_to_peer"]["median"] == 1.0


def test_more_is_measured_into_a_document_of_the_same_settings_only(tmp_path):
    path = tmp_path / "peers.json"
    results = {"threads": 2, "prompts": ["a"], "tuning": {"y": {}}, "peers": {"x": {"version": "1"}}}
    path.write_text(json.dumps({"results": results}))
    assert compare.earlier(path, {"threads": 2, "prompts": ["a"]}) == ({"y": {}}, {"x": {"version": "1"}})
    with pytest.raises(ValueError, match="measured with threads 2, and this is 4"):
        compare.earlier(path, {"threads": 4})


PROMPTS = [
    Prompt(f"{family}{number}", family, "text") for family in ("qa", "humaneval", "rag", "math") for number in "12"
]


def test_settings_are_tried_on_code_and_on_two_other_families():
    kinds = tuning.tuning_prompts(PROMPTS)
    assert {kind: [one.id for one in own] for kind, own in kinds.items()} == {
        "code": ["humaneval1"],
        "others": ["qa1", "rag1"],
    }
    asked = []

    def complete(ids, num_tokens, temperature):
        asked.append((num_tokens, temperature))
        return Answer(tuple(range(11)), 1, 0.1, 1.0 + temperature)

    found = tuning.tune(complete, Ours(), kinds, [0.0, 1.0], 48)
    assert found == {"temperature 0": {"code": 10.0, "others": 10.0}, "temperature 1": {"code": 5.0, "others": 5.0}}
    assert asked == [(2, 0.0), *[(48, 0.0)] * 3, *[(48, 1.0)] * 3]
    tuning.tune(complete, Ours(), kinds, [0.0], 128)
    assert asked[-1] == (64, 0.0)  # slow engines take their time


def test_each_engine_is_measured_where_it_is_best_on_code_or_elsewhere():
    rates = {"llama.cpp native plain": (9, 9), "llama.cpp wheel plain": (8, 8), "vLLM int8 draft": (9, 1)}
    rates |= {"vLLM int8 plain": (3, 4), "vLLM bf16 plain": (2, 3)}
    tuned = {name: {"temperature 0": {"code": code, "others": other}} for name, (code, other) in rates.items()}
    found = tuning.bests(ROSTER, tuned, [0.0])
    assert found == {0.0: ["llama.cpp native plain", "vLLM int8 draft", "vLLM int8 plain"]}
    assert tuning.bests(ROSTER, {}, [0.0]) == {0.0: []}


def test_an_engine_of_one_setting_needs_no_trying():
    few = [entry for entry in ROSTER if entry.name in ("OpenVINO int4 draft", "vLLM int8 draft", "vLLM bf16 draft")]
    assert [entry.name for entry in tuning.rivals(few)] == ["vLLM int8 draft", "vLLM bf16 draft"]
    assert tuning.bests(few, {}, [1.0]) == {1.0: ["OpenVINO int4 draft"]}


def test_what_was_tried_is_not_tried_again_and_what_does_not_start_is_told(monkeypatch):
    def start(entry, *_):
        if entry is ROSTER[1]:
            raise RuntimeError("it is not here")
        return "fake 1.0", lambda *_: Answer(tuple(range(11)), 1, 0.1, 1.0)

    monkeypatch.setattr(compare, "start", start)
    tuned, saved = {ROSTER[0].name: {}, ROSTER[2].name: {"problem": "it was not here"}}, []
    arguments = Namespace(temperatures=[0.0], max_tokens=8)
    compare.tune_all(ROSTER[:3], Ours(), PROMPTS, arguments, tuned, lambda: saved.append(len(tuned)))
    assert saved == [3, 3]
    assert tuned == {
        ROSTER[0].name: {},
        ROSTER[1].name: {"problem": "it is not here"},
        ROSTER[2].name: {"temperature 0": {"code": 10.0, "others": 10.0}},
    }


def test_the_time_it_takes_is_told(capsys):
    compare.tell_time(ROSTER, {}, Namespace(temperatures=[0.0, 1.0], max_tokens=32), 8)
    assert "trying settings takes about" in capsys.readouterr().out
    assert ROSTER[0].seconds(0, 0) < ROSTER[0].seconds(1, 0) < ROSTER[0].seconds(1, 10)


def test_every_setting_has_a_name_of_its_own_and_a_worker():
    assert len({entry.name for entry in ROSTER}) == len(ROSTER) == 19
    for entry in ROSTER:
        assert entry.form == "gguf" or Path(worker.__file__).with_name(f"{entry.engine}_worker.py").exists()


def test_llama_cpp_gets_the_draft_or_the_lookup_that_is_asked_for():
    assert "--spec-type" not in _flags(Settings("m", 2), 1)
    assert "draft-simple" in _flags(Settings("m", 2, draft="d"), 1)
    assert "ngram-simple" in _flags(Settings("m", 2, ngram=True), 1)


def measured(name="peer", total=2.0, **ratios):
    """Return a peer's figures by group: it does 10 tokens a second, and we a multiple of it, another one in total."""
    return {
        group: {
            "outrider_to_peer": {"median": ratio},
            OURS: {"tokens_per_s": {"median": 10 * ratio}},
            name: {"tokens_per_s": {"median": 10.0}, "total_ratio_to_outrider": 1 / total},
        }
        for group, ratio in ratios.items()
    }


def test_the_closest_is_found_for_every_group_and_temperature():
    unrated = {"all": {"outrider_to_peer": None}}
    peers = {
        "a": {"version": "1", "temperature 0": measured("a", 4.0, all=3.0, humaneval=5.0)},
        "b": {"version": "1", "temperature 0": measured("b", 2.0, all=4.0, humaneval=2.0), "temperature 1": unrated},
        "c": {"problem": "it is not here"},
    }
    assert closest(peers) == {
        "temperature 0": {
            "all": {
                "median": {"peer": "a", "outrider_to_peer": 3.0},
                "total": {"peer": "b", "outrider_to_peer": 2.0},
            },
            "humaneval": {
                "median": {"peer": "b", "outrider_to_peer": 2.0},
                "total": {"peer": "b", "outrider_to_peer": 2.0},
            },
        }
    }


def test_the_plot_shows_every_engine_and_takes_the_ink_of_the_page():
    figures = measured(all=3.0, humaneval=4.0)
    results = {"peers": {"peer": {"temperature 0": figures, "temperature 1": figures}, "gone": {"problem": "?"}}}
    assert plot.rates(results, "temperature 0", "all") == {OURS: 30.0, "peer": 10.0}
    svg = plot.draw(results)
    for text in (
        ">Outrider<",
        ">peer<",
        ">all kinds of prompts<",
        ">greedy<",
        ">temperature 1<",
        ">40.0<",
        "prefers-color-scheme: dark",
    ):
        assert text in svg
    assert "#010101" not in svg
    assert plot.draw(results) == svg
    assert svg.count(plot._OURS) > 0 < svg.count(plot._THEIRS)


def test_a_kind_of_prompts_that_is_all_there_is_has_one_bar():
    results = {"prompts": ["humaneval-0"], "peers": {"peer": {"temperature 0": measured(all=4.0, humaneval=4.0)}}}
    svg = plot.draw(results)
    assert "all kinds" not in svg
    assert svg.count(">40.0<") == 1


def test_a_plot_of_nothing_is_refused():
    with pytest.raises(ValueError, match="holds no rates"):
        plot.draw({"peers": {"gone": {"problem": "?"}}})
