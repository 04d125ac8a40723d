"""The pytest plugin, in a pytest of its own."""

import json
import os
import re
import sys
from pathlib import Path

from lettered_server import PROMPTS, ToyModel, Web, serving

pytest_plugins = ["pytester"]

SAMPLERS = """
    import numpy as np

    RNG = np.random.default_rng(1)

    def law(prefix):
        return np.array([0.6, 0.3, 0.1, 0.0])

    def right(prefix, n):
        return RNG.choice(4, (n, 3), p=law(prefix)).tolist()

    def wrong(prefix, n):
        return RNG.choice(4, (n, 3), p=[0.5, 0.3, 0.2, 0.0]).tolist()

    def impossible(prefix, n):
        return [*right(prefix, n - 1), [3]]

    def frozen(prefix, n):
        return [[0, 1]] * n
"""


TESTS = """
    import pytest

    from outrider.audit.endpoint.plan import Plan

    PLAN = Plan(prompts={prompts}, total_variation=0.5, budget=400, sampled_tokens=3, greedy_tokens=8)

    def test_passes_by_the_law(outrider_audit):
        certificate = outrider_audit.sampler(right, [[1], [2, 3]], law=law, num_draws=1500)
        assert certificate.judge().verdict == "pass"

    def test_passes_beside_the_baseline(outrider_audit):
        outrider_audit.sampler(right, [[1]], baseline=right, num_draws=4000)

    def test_wrong(outrider_audit):
        outrider_audit.sampler(wrong, [[1]], law=law)

    def test_wrong_beside_the_baseline(outrider_audit):
        outrider_audit.sampler(wrong, [[1]], baseline=right)

    def test_impossible(outrider_audit):
        outrider_audit.sampler(impossible, [[1]], law=law)

    def test_frozen(outrider_audit):
        outrider_audit.sampler(frozen, [[1]], law=law)

    def test_few(outrider_audit):
        outrider_audit.sampler(right, [[1]], law=law, num_draws=400)

    @pytest.mark.parametrize(("sample", "message"), [
        (lambda prefix, n: [], "returned 0 draws instead of 50"),
        (lambda prefix, n: [[]] * n, "a draw must be a list of at least one token id"),
        (lambda prefix, n: [["a"]] * n, "a draw must be a list of at least one token id"),
    ])
    def test_passes_by_telling(outrider_audit, sample, message):
        with pytest.raises(ValueError, match=message):
            outrider_audit.sampler(sample, [[1]], law=law, num_draws=50)

    def test_passes_by_telling_that_there_is_nothing_to_compare_with(outrider_audit):
        with pytest.raises(ValueError, match="either the law or a baseline"):
            outrider_audit.sampler(right, [[1]])

    def test_passes_as_a_server(outrider_audit):
        outrider_audit.endpoint({right!r}, baseline_url={right!r}, plan=PLAN)

    def test_wrong_server(outrider_audit):
        outrider_audit.endpoint({wrong!r}, baseline_url={right!r}, plan=PLAN, concurrency=2)
"""


def test_right_engines_pass_and_wrong_ones_fail(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # an installed outrider brings the plugin by itself
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(os.path.abspath, sys.path)))
    with serving(Web(ToyModel())) as right, serving(Web(ToyModel(("draft",)))) as wrong:
        pytester.makepyfile(SAMPLERS + TESTS.format(prompts=PROMPTS[:1], right=right, wrong=wrong))
        done = pytester.runpytest_subprocess("-p", "outrider.audit.pytest_plugin", "--outrider-certificates=kept")
    done.assert_outcomes(passed=7, failed=6)
    done.stdout.no_fnmatch_line("FAILED *::test_passes*")
    done.stdout.fnmatch_lines(
        [
            "fail: what was emitted is not what the target would have said: draws",
            "draws: p = *total variation at least 0.*",
            "inconclusive: *",
            "every draw after a prefix is the same: give the sampler new random numbers for each",
            "inconclusive: only a total variation of 0.* observations are needed*",
            "fail: *greedy answers*",
        ]
    )
    kept = list(Path(pytester.path, "kept").iterdir())
    assert len(kept) == 9
    assert {json.loads(file.read_text())["verdict"] for file in kept} == {"pass", "fail", "inconclusive"}


def test_an_installed_outrider_brings_the_plugin():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert re.search(r'\[project.entry-points.pytest11\]\noutrider = "outrider.audit.pytest_plugin"', text)
