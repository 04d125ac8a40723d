"""The examples for those who audit an engine of their own."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

from outrider.audit.certificate import check

EXAMPLES = Path(__file__).parents[2] / "examples"
CERTIFICATES = EXAMPLES.parent / "docs" / "certificates"


def test_the_example_for_pytest():
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    plugin = ("-p", "outrider.audit.pytest_plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, *plugin, "test_lossless.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES, env=environment)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_sums_of_published_certificates_of_other_engines_come_out():
    for name in ("openvino-coins", "openvino-smollm2", "llama-cpp-coins", "transformers-coins"):
        assert check(json.loads((CERTIFICATES / f"{name}.json").read_text())) == []


def test_the_workflow_gives_commands_that_exist(outrider):
    workflow = yaml.safe_load((EXAMPLES / "audit.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["audit"]["steps"] if "run" in step]
    ours = [shlex.split(command.rstrip("& ")) for command in commands if command.startswith("outrider ")]
    assert [words[1:3] for words in ours] == [
        ["serve", "--target"],
        ["serve", "--target"],
        ["audit", "endpoint"],
        ["audit", "check"],
    ]
    for _, *words in ours:
        names = words[: next((i for i, word in enumerate(words) if word.startswith("-") or "." in word), len(words))]
        _, help_text, _ = outrider(*names, "--help")
        assert all(word in help_text for word in words if word.startswith("--"))
