"""What the fixture ``outrider_audit`` gives to tests; see :mod:`outrider.audit.pytest_plugin`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from outrider.audit.callables import NextLaw, Sample, audit_callable
from outrider.audit.certificate import Certificate
from outrider.audit.endpoint.certify import EndpointAudit, Surroundings
from outrider.audit.endpoint.client import Server
from outrider.audit.endpoint.plan import Plan
from outrider.audit.provenance import versions

_PLAN = Plan()


class Auditor:
    """What the fixture ``outrider_audit`` gives.

    Args:
        folder: Where certificates are kept; None for nowhere.
        name: Of the test.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._folder = folder
        self._name = name
        self._num = 0

    def endpoint(
        self,
        base_url: str,
        *,
        baseline_url: str | None = None,
        max_requests: int | None = None,
        plan: Plan = _PLAN,
        **server: Any,
    ) -> Certificate:
        """Audit a server with the OpenAI API.

        Args:
            base_url: The server with speculation.
            baseline_url: The same without; if None, it is held to the law that it reports itself.
            max_requests: The most requests.
            plan: What is asked, and what must not go unnoticed.
            server: More fields of :class:`~outrider.audit.endpoint.client.Server`, for both.
        """
        audited = Server(base_url=base_url, **server)
        baseline = None if baseline_url is None else replace(audited, base_url=baseline_url)
        around = Surroundings(time.sleep, _now, versions(), seed=0)
        audit = EndpointAudit(audited, baseline, None, plan, around, max_requests=max_requests)
        try:
            return self._judged(audit.run(lambda _: None, f"pytest {self._name}"))
        finally:
            audit.close()

    def sampler(  # noqa: PLR0913 - each is a choice of its own
        self,
        sample: Sample,
        prefixes: Sequence[Sequence[int]],
        *,
        law: NextLaw | None = None,
        baseline: Sample | None = None,
        num_draws: int = 4000,
        total_variation: float = 0.05,
    ) -> Certificate:
        """Audit a function that draws; see :func:`outrider.audit.callables.audit_callable` for the arguments."""
        certificate = audit_callable(
            sample,
            prefixes,
            law=law,
            baseline=baseline,
            num_draws=num_draws,
            total_variation=total_variation,
            now=_now(),
            versions=versions(),
            command=f"pytest {self._name}",
        )
        return self._judged(certificate)

    def _judged(self, certificate: Certificate) -> Certificate:
        document = certificate.to_json()
        if self._folder is not None:
            self._num += 1
            self._folder.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^A-Za-z0-9_.-]+", "-", self._name).strip("-")
            number = "" if self._num == 1 else f"-{self._num}"
            (self._folder / f"{name}{number}.json").write_text(json.dumps(document, indent=1) + "\n")
        if document["verdict"] != "pass":
            pytest.fail("\n".join([f"{document['verdict']}: {document['reason']}", *certificate.notes]), pytrace=False)
        return certificate


def _now() -> datetime:
    return datetime.now(timezone.utc)
