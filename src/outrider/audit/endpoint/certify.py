"""From servers to a certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import PureWindowsPath
from typing import Any

import httpx
import numpy as np

from outrider.audit.certificate import Certificate, Claim
from outrider.audit.endpoint.checks import Check
from outrider.audit.endpoint.client import Client, Meter, Server
from outrider.audit.endpoint.local import LocalModel
from outrider.audit.endpoint.plan import CHATS, COMPLETIONS, Plan
from outrider.audit.endpoint.run import audit_endpoint
from outrider.audit.endpoint.sampling import CLAIMED, LAW
from outrider.engine.loading import Model

_CONNECTING = 100  # requests to find out what a server offers, attempts that fail included
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an audit takes from outside, apart from the servers.

    Attributes:
        sleep: Waits for some seconds.
        now: The time of day, with its zone.
        versions: Of what runs it, for the certificate.
        seed: Of the audit's own random numbers.
        progress: Told what goes on, and how many answers more that is.
        transport: Stands in for the network.
    """

    sleep: Callable[[float], None]
    now: Callable[[], datetime]
    versions: Mapping[str, str]
    seed: int
    progress: Callable[[str, int], None] = lambda _what, _num: None
    transport: httpx.BaseTransport | None = None


class EndpointAudit:
    """An audit that is ready to start: its servers answer, and its cost is known.

    Args:
        server: What is audited.
        baseline: The same model on the same server without speculation; None without one.
        load: Without a baseline, loads the model that is served, which then answers for it, and says what is known
            of its file; None if it is not here.
        plan: How much is asked. Without prompts, it gets some of ours; without a budget, what it is likely to take.
        max_requests: No more requests than this, even if nothing can be concluded then; None for what is estimated, and
            a fifth of that for attempts that fail.
        around: What else it takes.

    Attributes:
        plan: As it will be carried out.
        meter: Counts what is sent.

    Raises:
        EndpointError: A server does not answer a simple question.
        UsageError: A URL is none.
    """

    def __init__(  # noqa: PLR0913 - what there is to say of an audit
        self,
        server: Server,
        baseline: Server | None,
        load: Callable[[], tuple[Model, Mapping[str, Any]]] | None,
        plan: Plan,
        around: Surroundings,
        *,
        max_requests: int | None = None,
    ) -> None:
        self.meter = Meter(_CONNECTING)
        self._around = around
        with ExitStack() as stack:  # closed here if anything below fails
            self._audited = self._client(server, stack)
            self._served = None if baseline is None else self._client(baseline, stack)
            is_chat = self._audited.api == "chat"
            self._file: LocalModel | None = None
            self._facts: Mapping[str, Any] = {}
            if load is not None:
                model, self._facts = load()
                self._file = LocalModel(model, chat=is_chat)
            self._clients = stack.pop_all()
        if not plan.prompts:
            plan = replace(plan, prompts=CHATS if is_chat else COMPLETIONS)
        sent = self.meter.requests  # to connect
        self.plan = plan.within(_NO_LIMIT if max_requests is None else max_requests - sent, self.num_drawing)
        likely = sent + self.plan.requests(self.num_drawing) * 6 // 5
        self.meter.max_requests = likely if max_requests is None else max_requests

    @property
    def num_drawing(self) -> int:
        """From how many servers answers are sampled to compare them."""
        return 2 if self._served is not None else 1 if self._file is not None else 0

    def cost(self) -> str:
        """Return what it will take, in words."""
        requests, tokens = self.plan.requests(self.num_drawing), self.plan.tokens(self.num_drawing)
        return f"about {requests:,} requests and at most {tokens:,} tokens, read and written"

    def run(self, told: Callable[[Check], None], command: str) -> Certificate:
        """Carry it out.

        Args:
            told: Hears what each check comes to, as soon as it does.
            command: That does it again, for the certificate.
        """
        checks: list[Check] = []
        baseline = self._served or self._file
        rng = np.random.default_rng(self._around.seed)
        for check in audit_endpoint(
            self._audited,
            baseline,
            self.plan,
            same_engine=self._served is not None,
            rng=rng,
            progress=self._around.progress,
        ):
            checks.append(check)
            told(check)
        return Certificate(
            kind="endpoint",
            created=self._around.now().isoformat(timespec="seconds"),
            command=command,
            subject=self._subject(),
            settings={**asdict(self.plan), "prompts": list(self.plan.prompts), "seed": self._around.seed},
            versions=self._around.versions,
            claim=Claim(self.plan.level, self.plan.total_variation, self.plan.power, LAW if baseline else CLAIMED),
            evidence=tuple(check.evidence for check in checks if check.evidence.num or check.is_needed),
            notes=tuple(f"{check.evidence.name}: {check.summary}" for check in checks),
        )

    def close(self) -> None:
        """Let go of the connections."""
        self._clients.close()

    def _client(self, server: Server, stack: ExitStack) -> Client:
        around = self._around
        client = Client(server, self.meter, sleep=around.sleep, now=around.now, transport=around.transport)
        stack.callback(client.close)
        return client

    def _subject(self) -> dict[str, Any]:
        sent = {"requests": self.meter.requests, "retries": self.meter.retries, "tokens": self.meter.tokens}
        subject: dict[str, Any] = {"server": _named(self._audited), **sent}
        if self._served is not None:
            subject["baseline"] = _named(self._served)
        if self._file is not None:
            subject["baseline"] = dict(self._facts)
        return subject


def _named(client: Client) -> dict[str, str]:
    # Some servers list a model by where its file lies, which is nobody's business.
    model = PureWindowsPath(client.model).name if PureWindowsPath(client.model).root else client.model
    return {"url": client.name, "model": model, "api": client.api}
