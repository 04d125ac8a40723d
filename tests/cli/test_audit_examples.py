"""The examples for those who audit an engine of their own."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from outrider.audit.certificate import certificate_from_json, check
from outrider.audit.completeness import missing

EXAMPLES = Path(__file__).parents[2] / "examples"
CERTIFICATES = EXAMPLES.parent / "docs" / "certificates"


def test_the_example_for_pytest():
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    plugin = ("-p", "outrider.audit.pytest_plugin", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, *plugin, "test_lossless.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=EXAMPLES, env=environment)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("path", sorted(CERTIFICATES.glob("*.json")), ids=lambda path: path.stem)
def test_the_sums_of_a_published_certificate_come_out_and_the_index_says_its_verdict(path):
    document = json.loads(path.read_text())
    assert check(document) == []
    assert missing(certificate_from_json(document)) == []
    assert not re.search(r"/(home|root|tmp|work|Users)/", path.read_text()), "a machine's own paths are in it"
    [row] = re.findall(
        rf"^\| \[{path.stem}\]\({path.name}\) .*$", (CERTIFICATES / "README.md").read_text(), re.MULTILINE
    )
    assert f" {document['verdict']} " in row


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
