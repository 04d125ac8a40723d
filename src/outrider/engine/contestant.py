"""The engine as one of those that are measured beside each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outrider.engine.llm import LLM
from outrider.metrics.paired import Answer
from outrider.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Outrider:
    """An LLM, asked through its front door; see :class:`outrider.metrics.paired.Contestant`."""

    name: str
    llm: LLM
    params: SamplingParams = field(default_factory=SamplingParams)
    chat: bool = True
    predictions: dict[str, str] | None = None  # by prompt: text that its answer will resemble

    def answer(self, prompt: str, num_tokens: int) -> Answer:
        """Answer with at most ``num_tokens`` tokens; errors are those of :meth:`LLM.generate`."""
        predicted = None if self.predictions is None else self.predictions[prompt]
        params = replace(self.params, max_tokens=num_tokens)
        [output] = self.llm.generate(prompt, params, chat=self.chat, prediction=predicted)
        return Answer(
            output.token_ids,
            output.usage.prompt_tokens,
            output.timing.prefill_s,
            output.timing.decode_s,
            output.speculation.counters,
        )
