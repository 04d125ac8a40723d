"""A model file that answers as a server would, decoding plainly: its draws follow its law exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from outrider.audit.endpoint.questions import Answer, Place, Question
from outrider.engine.llm import LLM
from outrider.engine.loading import Model
from outrider.engine.outputs import GenerationOutput
from outrider.models.tokenizer import Tokenizer
from outrider.sampling import SamplingParams, TokenLogprobs

_MOST_AT_ONCE = 128  # answers to a prompt that share one reading of it
_SIDE_BY_SIDE = 16


class LocalModel:
    """An :class:`~outrider.audit.endpoint.questions.Asker` that reads a model file.

    Args:
        model: The loaded model.
        chat: Whether prompts are messages, as for servers that only have chats.
    """

    def __init__(self, model: Model, *, chat: bool) -> None:
        self.name = model.name
        self._tokenizer = model.tokenizer
        self._llm = LLM(model, max_sequences=_SIDE_BY_SIDE)
        self._chat = chat

    def ask(self, question: Question) -> Answer:
        """See :class:`~outrider.audit.endpoint.questions.Asker`."""
        return self.ask_many([question])[0]

    def ask_many(self, questions: Sequence[Question]) -> list[Answer]:
        """See :class:`~outrider.audit.endpoint.questions.Asker`."""
        answers: list[Answer] = []
        for question, same in groupby(questions):
            for num in _parts(len(list(same))):
                outputs = self._llm.generate([question.prompt], _params(question, num), chat=self._chat)
                answers += [_answer(output, self._tokenizer) for output in outputs]
        return answers


def _parts(num: int) -> Iterator[int]:
    for start in range(0, num, _MOST_AT_ONCE):
        yield min(_MOST_AT_ONCE, num - start)


def _params(question: Question, num: int) -> SamplingParams:
    return SamplingParams(
        temperature=question.temperature,
        max_tokens=question.max_tokens,
        seed=question.seed,
        stop=() if question.stop is None else (question.stop,),
        presence_penalty=question.presence_penalty,
        frequency_penalty=question.frequency_penalty,
        logprobs=question.logprobs,
        n=num,
    )


def _answer(output: GenerationOutput, tokenizer: Tokenizer) -> Answer:
    places = None
    if output.logprobs is not None:
        places = tuple(
            _place(token_id, one, tokenizer) for token_id, one in zip(output.token_ids, output.logprobs, strict=True)
        )
    return Answer(output.text, places, output.finish_reason, output.usage.prompt_tokens, output.usage.completion_tokens)


def _place(token_id: int, one: TokenLogprobs, tokenizer: Tokenizer) -> Place:
    top = {tokenizer.decode([top_id]): logprob for top_id, logprob in one.top}
    return Place(tokenizer.decode([token_id]), one.logprob, top)
