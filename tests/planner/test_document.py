"""Plans go to JSON and back, and nothing else is taken for one."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import made_up

from outrider.errors import UsageError
from outrider.planner.document import from_json, to_json

TEXT = to_json(made_up())


def changed(path, value):
    document = json.loads(TEXT)
    place = document
    for key in path[:-1]:
        place = place[key]
    if value is KeyError:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return json.dumps(document).encode()


def test_a_plan_comes_back_as_it_was():
    assert from_json(TEXT.encode(), "plan.json") == made_up()


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("outrider_plan",), 2, "outrider_plan is 2; this version reads 1"),
        (("outrider_plan",), True, "outrider_plan"),
        (("created",), KeyError, "created"),
        (("surprise",), 1, "surprise"),
        (("machine", "cores"), "2", "machine.cores"),
        (("recommended",), 3, "choice 3 is recommended, of 3"),
        (("recommended",), -1, "choice -1 is recommended"),
        (("by_family", "code"), 9, "choice 9 is recommended"),
        (("choices",), [], "choice 1 is recommended, of 0"),
        (("passes",), [], "passes of 0 models are given"),
        (("choices", 0, "rule"), "lossy", "choices.0.rule"),
        (("passes", 0, "curve", "points"), [[1]], "passes.0.curve.points.0"),
        (("passes", 0, "spread"), "0.1", "passes.0.spread"),
        (("settings", "draft_options"), {"weights": "int2"}, "settings.draft_options"),
    ],
)
def test_what_is_wrong_is_named(path, value, problem):
    with pytest.raises(UsageError, match=r"plan\.json is no plan: ") as error:
        from_json(changed(path, value), "plan.json")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[]", b"null", b"{", b"[" * 100_000, TEXT.encode()[:-2], b" " * (1 << 25)]
)
def test_other_files_are_no_plans(data):
    with pytest.raises(UsageError, match=r"plan\.json"):
        from_json(data, "plan.json")


def test_numbers_are_numbers():
    with pytest.raises(UsageError, match="is no plan"):
        from_json(TEXT.replace("0.1", "NaN", 1).encode(), "plan.json")
    with pytest.raises(UsageError, match="is no plan"):
        from_json(TEXT.replace("0.1", "1e999", 1).encode(), "plan.json")


@given(st.data())
def test_damage_is_an_error_or_a_plan_and_nothing_worse(data):
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with suppress(UsageError):
        from_json(bytes(text), "plan.json")
