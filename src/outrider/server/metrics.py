"""Prometheus metrics under vLLM's names, so that dashboards carry over."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from outrider.engine.outputs import GenerationOutput
from outrider.engine.scheduler import Scheduler
from outrider.engine.sequence import Sequence as Answer
from outrider.metrics import SpeculationCounters

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
        self._success = self._counter(
            "request_success", "Answers that ended, abort: nobody waited any more", "finished_reason"
        )
        self._running = self._gauge("num_requests_running", "Answers being worked on")
        self._waiting = self._gauge("num_requests_waiting", "Answers waiting for their turn")
        self._cached = self._gauge("num_cached_tokens", "Tokens in the target's caches")
        self._ttft = self._histogram("time_to_first_token_seconds", "From the request to its first token")
        self._gap = self._histogram("inter_token_latency_seconds", "Between two tokens of an answer, its rounds' mean")
        self._e2e = self._histogram("e2e_request_latency_seconds", "From the request to its last token")
        self._queue = self._histogram("request_queue_time_seconds", "From the request to its turn")

    def load(self, scheduler: Scheduler) -> None:
        """Take note of what is being worked on."""
        self._running.set(scheduler.num_live)
        self._waiting.set(scheduler.num_waiting)
        self._cached.set(scheduler.num_cached_tokens)

    def count(self, num_tokens: int, gaps: Sequence[float]) -> None:
        """Take note of some rounds of an answer: how many tokens they brought, and what a token took in each."""
        self._tokens.inc(num_tokens)
        for gap_s in gaps:
            self._gap.observe(gap_s)

    def end(self, output: GenerationOutput, queued_s: float) -> None:
        """Take note of an answer that has ended, and that had waited so long for its turn."""
        timing = output.timing
        self._close(output.speculation.counters, output.usage.prompt_tokens, output.finish_reason)
        self._queue.observe(queued_s)
        self._ttft.observe(queued_s + timing.prefill_s)
        self._e2e.observe(queued_s + timing.prefill_s + timing.decode_s)

    def abort(self, answer: Answer) -> None:
        """Take note of an answer that nobody waits for any more; its prompt counts if its first token had come."""
        num_prompt_tokens = len(answer.request.prompt_ids) if answer.emitted else 0
        self._close(answer.counters, num_prompt_tokens, "abort")

    def text(self) -> bytes:
        """Return all of it in Prometheus' text format."""
        return generate_latest(self.registry)

    def _close(self, counters: SpeculationCounters, num_prompt_tokens: int, reason: str) -> None:
        self._drafts.inc(counters.num_drafts)
        self._draft_tokens.inc(counters.num_draft_tokens)
        self._accepted.inc(counters.num_accepted_tokens)
        for position, count in enumerate(counters.num_accepted_tokens_per_pos):
            self._per_pos.labels(self._model, position).inc(count)
        self._prompt_tokens.inc(num_prompt_tokens)
        self._success.labels(self._model, reason).inc()

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        counter = Counter(f"vllm:{name}", meaning, ["model_name", *labels], registry=self.registry)
        return counter if labels else counter.labels(self._model)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"vllm:{name}", meaning, ["model_name"], registry=self.registry).labels(self._model)

    def _histogram(self, name: str, meaning: str) -> Histogram:
        return Histogram(f"vllm:{name}", meaning, ["model_name"], registry=self.registry, buckets=_SECONDS).labels(
            self._model
        )
