"""Prometheus metrics under vLLM's names, so that dashboards carry over."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from outrider.engine.outputs import GenerationOutput
from outrider.engine.scheduler import Scheduler
from outrider.server.engine import Event

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)


class Metrics:
    """The metrics of one server, in a registry of their own.

    Args:
        model: The label ``model_name``.
    """

    def __init__(self, model: str) -> None:
        self.registry = CollectorRegistry()
        self._model = model
        self._drafts = self._counter("spec_decode_num_drafts", "Rounds with a draft")
        self._draft_tokens = self._counter("spec_decode_num_draft_tokens", "Draft tokens")
        self._accepted = self._counter("spec_decode_num_accepted_tokens", "Accepted tokens")
        self._per_pos = self._counter("spec_decode_num_accepted_tokens_per_pos", "By place in the draft", "position")
        self._prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts answered")
        self._tokens = self._counter("generation_tokens", "Tokens of answers")
        self._success = self._counter("request_success", "Answers that ended", "finished_reason")
        self._running = self._gauge("num_requests_running", "Answers being worked on")
        self._waiting = self._gauge("num_requests_waiting", "Answers waiting for their turn")
        self._cached = self._gauge("num_cached_tokens", "Tokens in the target's caches")
        self._ttft = self._histogram("time_to_first_token_seconds", "From the request to its first token")
        self._gap = self._histogram("inter_token_latency_seconds", "Between two tokens of an answer, its rounds' mean")
        self._e2e = self._histogram("e2e_request_latency_seconds", "From the request to its last token")
        self._queue = self._histogram("request_queue_time_seconds", "From the request to its turn")

    def observe(self, events: Sequence[Event], scheduler: Scheduler) -> None:
        """Take note of a round."""
        self._running.set(scheduler.num_live)
        self._waiting.set(scheduler.num_waiting)
        self._cached.set(scheduler.num_cached_tokens)
        for event in events:
            self._tokens.inc(len(event.tokens))
            if event.gap_s is not None:
                self._gap.observe(event.gap_s / max(1, len(event.tokens)))
            if event.output is not None:
                self._end(event.output, event.queued_s)

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def _end(self, output: GenerationOutput, queued_s: float) -> None:
        counters, timing = output.speculation.counters, output.timing
        self._drafts.inc(counters.num_drafts)
        self._draft_tokens.inc(counters.num_draft_tokens)
        self._accepted.inc(counters.num_accepted_tokens)
        for position, count in enumerate(counters.num_accepted_tokens_per_pos):
            self._per_pos.labels(self._model, position).inc(count)
        self._prompt_tokens.inc(output.usage.prompt_tokens)
        self._success.labels(self._model, output.finish_reason).inc()
        self._queue.observe(queued_s)
        self._ttft.observe(queued_s + timing.prefill_s)
        self._e2e.observe(queued_s + timing.prefill_s + timing.decode_s)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        counter = Counter(f"vllm:{name}", meaning, ["model_name", *labels], registry=self.registry)
        return counter if labels else counter.labels(self._model)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"vllm:{name}", meaning, ["model_name"], registry=self.registry).labels(self._model)

    def _histogram(self, name: str, meaning: str) -> Histogram:
        return Histogram(f"vllm:{name}", meaning, ["model_name"], registry=self.registry, buckets=_SECONDS).labels(
            self._model
        )
