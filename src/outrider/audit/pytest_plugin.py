"""A pytest plugin: the fixture ``outrider_audit``, by which authors of engines test their own losslessness.

    def test_speculation_is_lossless(outrider_audit):
        outrider_audit.endpoint("http://127.0.0.1:8080/v1", baseline_url="http://127.0.0.1:8081/v1")

    def test_my_sampler(outrider_audit):
        outrider_audit.sampler(my_sampler, prefixes=[[1, 2, 3]], law=my_law)

A test fails if speculation is found to change what is said, and also if nothing can be concluded: what would be needed
is in the message. ``--outrider-certificates DIR`` keeps the certificates, one a test.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from outrider.audit.auditor import Auditor


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("outrider")
    group.addoption("--outrider-certificates", metavar="DIR", help="keep the certificates of outrider_audit here")


@pytest.fixture
def outrider_audit(request: pytest.FixtureRequest) -> Auditor:
    """Audit an endpoint or a sampler; fails the test unless it passes."""
    from outrider.audit.auditor import Auditor  # noqa: PLC0415 - pytest reads this file in every run, needed or not

    folder = request.config.getoption("--outrider-certificates")
    return Auditor(None if folder is None else Path(folder), request.node.nodeid)
