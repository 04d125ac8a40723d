"""Every fault that docs/faults.md tells of is kept out by a test that exists."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROWS = [
    line.split("|")[1:4]
    for line in (TESTS.parent / "docs" / "faults.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| fault")
]


def test_no_kind_of_fault_is_left_out():
    assert len(ROWS) == 66
    assert len({fault for fault, _, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_its_test_exists(row):
    named = re.fullmatch(r" `([a-z_/]+\.py)::(test_\w+)` ", row[2])
    assert named, row
    tree = ast.parse((TESTS / named[1]).read_text())
    assert named[2] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
