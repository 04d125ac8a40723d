"""What one server process holds: the engine, the metrics, the log, and what it tells of itself."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from outrider.backends.prefixes import rounded
from outrider.engine.llm import LLM
from outrider.server.engine import Engine
from outrider.server.logs import Log
from outrider.server.metrics import Metrics
from outrider.server.settings import Settings
from outrider.server.tools import has_tools

if TYPE_CHECKING:
    from outrider.server.answering import Reply

_TOKENS_A_SEQUENCE = 4096  # of caches, where nobody says how many


class Service:
    """One loaded engine, ready to be served.

    Args:
        llm: Nobody else uses it from now on.
        settings: How it is served.
        log: Where events are noted.
    """

    def __init__(self, llm: LLM, settings: Settings, log: Log) -> None:
        self.llm = llm
        self.settings = settings
        self.log = log
        self.metrics = Metrics(llm.model.name)
        self.is_stopping = False
        self.num_cut_off = 0  # answers that the end of the server has cut off
        self.created = int(time.time())
        self.num_tokens = settings.max_cached_tokens or max(
            rounded(llm.model.backend.max_length, llm.cache_grain), settings.max_sequences * _TOKENS_A_SEQUENCE
        )
        self.memory_bytes = llm.weight_bytes + self.num_tokens * llm.cache_bytes_per_token()
        self.engine = Engine(
            llm,
            max_sequences=settings.max_sequences,
            max_waiting=settings.max_waiting,
            max_cached_tokens=self.num_tokens,
            metrics=self.metrics,
        )

    @property
    def version(self) -> str:
        """Of the package."""
        try:
            return version("outrider")
        except PackageNotFoundError:  # run from a checkout
            return "0"

    def start(self) -> None:
        """Start the engine, in the running event loop."""
        self.engine.start(asyncio.get_running_loop())

    def stop(self) -> None:
        """Stop the engine; what is open ends here, and the log says how much that was."""
        self.engine.stop()
        self.log.write("stopped", cut_off=self.num_cut_off)

    def card(self) -> dict[str, Any]:
        """Return OpenAI's description of the model."""
        model = self.llm.model
        limit = {"max_model_len": model.backend.max_length}
        return {"id": model.name, "object": "model", "created": self.created, "owned_by": "outrider", **limit}

    def info(self) -> dict[str, Any]:
        """Return what is loaded, and how it is set up."""
        model, settings = self.llm.model, self.settings
        return {
            "target": model.name,
            "drafts": list(self.llm.drafters),
            "memory_bytes": self.memory_bytes,
            "threads": self.llm.threads,
            "speculation": self.llm.speculation_status(),
            "defaults": {"temperature": 1.0, "max_tokens": None, "completions_max_tokens": 16},
            "limits": {
                "max_tokens": model.backend.max_length,
                "max_sequences": settings.max_sequences,
                "max_waiting": settings.max_waiting,
                "max_cached_tokens": self.num_tokens,
                "max_body_bytes": settings.max_body_bytes,
                "request_timeout_s": settings.request_timeout_s,
                "num_speculative_tokens": self.llm.num_speculative_tokens,
            },
            "has_tools": has_tools(model.chat_template),
            "version": self.version,
        }

    def describe(self, address: str) -> str:
        """Return the line that says what is served, what memory it takes, and whether it speculates and why."""
        status = self.llm.speculation_status()
        threads = self.llm.threads
        speculation = f"speculation is {'on' if status['active'] else 'off'}: {status['reason']}"
        return (
            f"serving {self.llm.model.name} at {address} with {threads} thread{'' if threads == 1 else 's'}; "
            f"{self.llm.weight_bytes / 1e9:.2f} GB of weights, up to {self.memory_bytes / 1e9:.2f} GB with "
            f"{self.num_tokens} tokens of cache; {speculation}; "
            f"{'API key required' if self.settings.api_keys else 'no API key'}"
        )

    def log_reply(self, reply: Reply, status: int | None) -> None:
        """Log how a reply went; without a status the client had gone."""
        outputs = list(reply.outputs.values())
        counters = [output.speculation.counters for output in outputs]
        if self.is_stopping:
            self.num_cut_off += len(reply.job.requests) - len(outputs)
        text: dict[str, Any] = {}
        if self.log.with_text:
            tokenizer = self.llm.model.tokenizer
            text["prompts"] = [tokenizer.decode(request.prompt_ids) for request in reply.job.requests]
            text["answers"] = [output.text for output in outputs]
        self.log.write(
            "reply",
            id=reply.request_id,
            status=status,
            gone=True if status is None else None,
            prompt_tokens=reply.job.num_prompt_tokens,
            completion_tokens=reply.num_tokens,
            finish_reasons=[output.finish_reason for output in outputs],
            num_draft_tokens=sum(counted.num_draft_tokens for counted in counters)
            + sum(drafted for drafted, _ in reply.so_far.values()),
            num_accepted_tokens=sum(counted.num_accepted_tokens for counted in counters)
            + sum(accepted for _, accepted in reply.so_far.values()),
            prefill_s=max((round(output.timing.prefill_s, 4) for output in outputs), default=None),
            decode_s=max((round(output.timing.decode_s, 4) for output in outputs), default=None),
            **text,
        )
