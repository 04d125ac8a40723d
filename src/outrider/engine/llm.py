"""The front door: models by name, prompts as text or messages, answers whole or as they come."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from outrider import _core
from outrider.backends.native import CACHE_CHUNK, NativeBackend
from outrider.drafters.cascade import CascadeDrafter
from outrider.drafters.compression import DraftOptions
from outrider.engine.account import account
from outrider.engine.combining import check_directory, combine_timed, default_length, native_backends, open_store
from outrider.engine.costs import Costs
from outrider.engine.loading import DraftRef, Model, ModelRef, Resolver, load_pair, resolve_quietly
from outrider.engine.outputs import EmittedToken, GenerationOutput, StreamChunk
from outrider.engine.prompts import (
    Prompt,
    as_params,
    as_predictions,
    as_prompts,
    as_wish,
    check_length,
    check_prompt,
    check_whole,
    encode_beginning,
    naming,
)
from outrider.engine.rules import parse_rule
from outrider.engine.scheduler import Scheduler, run
from outrider.engine.sequence import Request, Rule, SpeculationParams
from outrider.engine.sequence import Sequence as Answer
from outrider.engine.step import Stepper
from outrider.errors import UsageError
from outrider.models.chat import encode_chat
from outrider.sampling import SamplingParams, Vocabulary, compile_params

MAX_SPECULATIVE_TOKENS = 64


class LLM:
    """A target model, with or without a draft, that answers prompts.

    Used by one thread at a time; several streams may be open side by side.

    Args:
        target: A path, a catalog name, ``hf:owner/repo[/file]``, or a loaded model.
        draft: The same, for a smaller model, best of the same family; or the name of a drafter that needs no model,
            such as ``"ngram"``; or ``"auto"``, which is ``"ngram"`` and the likeliest of the models at hand that
            are clearly smaller, in the cache or beside the target; or a drafter, which other LLMs may use, too;
            or None or ``"none"``. Or several of these, in a list or with commas between their names: each round is
            then drafted by the one that promises most for its cost. ``"ngram"`` joins a single draft model by itself;
            ``[model]`` or ``"model,none"`` is the model alone.
        draft_options: How a draft model is held; by default compressed (see :class:`DraftOptions`), unless it is loaded
            already. The answers' law does not depend on it.
        num_speculative_tokens: The most draft tokens of a round, 0 to turn speculation off. By default 12 of a draft
            model and 64 of ``"ngram"``; each round has as many of them as are worth their cost, which may be none. A
            drafter that is handed in by itself is asked for as many as this in every round, by default 6.
        draft_tree: Let a draft model propose up to this many tokens a round as a tree, several candidates for a place,
            at most ``num_speculative_tokens`` after one another; 0, the default, for one candidate each.
        store: A directory for past outputs, where ``"ngram"`` looks, too; readable by its owner only, one file for
            each model, at most a million tokens each. None, the default, keeps nothing.
        rule: How drafts of sampled text are verified; see :mod:`outrider.engine.rules`.
        threads: How many threads compute; by default one for each physical core.
        ctx_size: The most tokens of prompt and answer together; by default what the target allows.
        max_sequences: How many prompts of one call are answered side by side. More gives more tokens per second in
            all, and each answer later.
        costs: What passes of these models cost on this machine, if it is known; by default it is measured while
            loading. What the rounds take corrects it. It decides which drafts are worth their while, nothing else.
        resolver: From the name of a model to its place on disk; by default the user's cache, downloading if need be.
        clock: Seconds from any fixed moment.
        entropy: Seeds, below 2**64, for requests that have none.

    Raises:
        UsageError: An argument is out of range.
        ModelFileError: A model is missing, damaged or not supported.
        IncompatibleDraftError: The draft's vocabulary has too little in common with the target's.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        target: ModelRef,
        draft: DraftRef | Sequence[DraftRef] = None,
        *,
        draft_options: DraftOptions | None = None,
        num_speculative_tokens: int | None = None,
        draft_tree: int = 0,
        store: str | Path | None = None,
        rule: str = "auto",
        threads: int | None = None,
        ctx_size: int | None = None,
        max_sequences: int = 1,
        costs: Costs | None = None,
        resolver: Resolver = resolve_quietly,
        clock: Callable[[], float] = time.perf_counter,
        entropy: Callable[[], int] = lambda: secrets.randbits(64),
    ) -> None:
        if num_speculative_tokens is not None:
            limit = MAX_SPECULATIVE_TOKENS
            check_whole("num_speculative_tokens", num_speculative_tokens, 0, limit, "0 turns speculation off")
        check_whole("draft_tree", draft_tree, 0, MAX_SPECULATIVE_TOKENS, "0 lets drafts not branch")
        if threads is not None:
            check_whole("threads", threads, 1, _core.MAX_THREADS, "the default is one for each physical core")
        if ctx_size is not None:
            check_whole("ctx_size", ctx_size, 2, None, "the most tokens of prompt and answer together")
        check_whole("max_sequences", max_sequences, 1, None, "one prompt at a time is 1")
        directory = None if store is None else check_directory(store)
        verification = parse_rule(rule)
        started_at = clock()
        model, parts = load_pair(
            *(target, draft, draft_options),
            threads=threads,
            ctx_size=ctx_size,
            resolver=resolver,
            draft_tree=draft_tree,
            clock=clock,
        )
        self._store = None if directory is None else open_store(directory, model)
        drafter, backend = combine_timed(
            parts, model, store=self._store, max_model_tokens=num_speculative_tokens, clock=clock, known=costs
        )
        self._backends = native_backends(model, parts)
        self._load_s = clock() - started_at
        self._model, self._clock, self._entropy = model, clock, entropy
        self._vocabulary = Vocabulary(model.tokenizer, model.vocab_size)
        self._max_sequences = max_sequences
        k = default_length(drafter) if num_speculative_tokens is None else int(num_speculative_tokens)
        self._stepper = Stepper(
            target=backend,
            vocab_size=model.vocab_size,
            eos_ids=model.tokenizer.eos_ids,
            detokenizer=model.tokenizer,
            drafter=drafter if k else None,
            num_speculative_tokens=k,
            max_tree_tokens=max(k, draft_tree),
            rule=verification,
        )
        self._drafter_name = None if drafter is None else drafter.name

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool = True,
        prediction: str | Sequence[str | None] | None = None,
    ) -> list[GenerationOutput]:
        """Answer one prompt or many.

        Args:
            prompts: Each text or messages.
            params: For all prompts, or one for each; greedy by default.
            chat: Put text into the model's chat template, if it has one, as a user's message. Messages always go
                through it.
            prediction: Text that the answer is expected to resemble, such as a file that is to be edited; with many
                prompts one for each, or None. It is drafted from, and changes nothing but the speed. Of a longer one
                only as many tokens are looked at as the context holds: no answer repeats more.

        Returns:
            The answers to each prompt, in order: ``params.n`` of them, one after the other. An answer that the target
            could not go on with, for its logits are not numbers or its grammar has become too complex, holds what it
            had said by then and why (``error``); the others are none the worse for it.

        Raises:
            UsageError: A prompt is empty, there are not as many params as prompts, or params do not fit the model.
                Nothing has been generated then; of many prompts the message names the first that is wrong.
            ContextLengthError: A prompt leaves no room for an answer. The same goes for it.
            OutriderError: The target could not go on, and this was the only answer asked for.
        """
        many = as_prompts(prompts)
        each = as_params(params, len(many))
        requests = []
        predicted = as_predictions(prediction, len(many))
        for index, (prompt, one, text) in enumerate(zip(many, each, predicted, strict=True)):
            with naming(f"prompts[{index}]" if len(many) > 1 else None):
                requests += self._requests(prompt, one, text, chat=chat)
        answers = {}
        for answer, _ in self._run(requests):
            answers[answer.request.request_id] = answer
        if len(requests) == 1:
            _raise_error(answers[requests[0].request_id])
        return [self.output(answers[request.request_id]) for request in requests]

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        chat: bool = True,
        prediction: str | None = None,
    ) -> Iterator[StreamChunk]:
        """Answer one prompt as it is being generated: a chunk a round, the last one with the whole output.

        Arguments and errors are those of :meth:`generate`, but ``n`` must be 1; what can be wrong with the prompt or
        the params is raised at once, what ends the answer after the last chunk.
        """
        [params] = as_params([params] if isinstance(params, SamplingParams) else params, 1)
        check_whole("n", params.n, 1, 1, "a stream is one answer; generate gives many")
        [text] = as_predictions(prediction, 1)
        return self._stream(*self._requests(prompt, params, text, chat=chat))

    def without_draft(self) -> LLM:
        """Return an LLM that answers with the same target, in the same memory, and does not speculate."""
        return LLM(self._model, max_sequences=self._max_sequences, clock=self._clock, entropy=self._entropy)

    @property
    def rule(self) -> Rule:
        """How drafts of sampled text are verified."""
        return self._stepper.rule

    @property
    def drafters(self) -> tuple[str, ...]:
        """The names of what drafts."""
        drafter = self._stepper.drafter
        if drafter is None:
            return ()
        members = drafter.members if isinstance(drafter, CascadeDrafter) else ()
        return tuple(member.drafter.name for member in members) or (drafter.name,)

    @property
    def num_speculative_tokens(self) -> int:
        """The most draft tokens of a round; 0 without speculation."""
        return self._stepper.num_speculative_tokens if self.drafters else 0

    def speculation_status(self) -> dict[str, Any]:
        """Return whether it speculates and why, as a server tells it."""
        k = self.num_speculative_tokens
        reason = "no draft was given" if self._drafter_name is None else "num_speculative_tokens is 0"
        if k:
            reason = f"{self._drafter_name} proposes up to {k} tokens a round"
        return {"active": k > 0, "reason": reason, "num_speculative_tokens": k}

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return self._model.backend.threads if isinstance(self._model.backend, NativeBackend) else 1

    @property
    def weight_bytes(self) -> int:
        """What the models' weights take; those of toys are not counted."""
        return sum(backend.weight_bytes for backend in self._backends)

    def cache_bytes_per_token(self) -> int:
        """Return what the caches of one token take in all models; those of toys are not counted."""
        return sum(backend.bytes_per_token() for backend in self._backends)

    @property
    def cache_grain(self) -> int:
        """How many tokens the target's caches grow by."""
        return CACHE_CHUNK if isinstance(self._model.backend, NativeBackend) else 1

    @property
    def model(self) -> Model:
        """The target."""
        return self._model

    def scheduler(self, *, max_sequences: int, max_cached_tokens: int) -> Scheduler:
        """Return a scheduler that answers requests of :meth:`requests` side by side, and keeps the prompts it has read.

        While it is at work, all else that this LLM generates must be in its thread. What comes of its sequences is for
        :meth:`output`.
        """
        return Scheduler(
            self._stepper,
            max_sequences=max_sequences,
            clock=self._clock,
            max_cached_tokens=max_cached_tokens,
            keeps_prefixes=True,
            cache_grain=self.cache_grain,
        )

    def encode(self, prompt: Prompt, *, chat: bool = True, tools: Sequence[Any] | None = None) -> list[int]:
        """Return the token ids of a prompt as :meth:`generate` feeds it.

        Args:
            prompt: Text or messages.
            chat: See :meth:`generate`.
            tools: JSON schemas of functions that the model may call; with messages only.

        Raises:
            UsageError: The prompt is empty, or neither Unicode text nor messages.
            ContextLengthError: It leaves no room for an answer.
        """
        check_prompt(prompt)
        model = self._model
        if not isinstance(prompt, str):
            token_ids = encode_chat(model.tokenizer, model.chat_template, prompt, tools=tools)
        elif chat and model.chat_template is not None:
            messages = [{"role": "user", "content": prompt}]
            token_ids = encode_chat(model.tokenizer, model.chat_template, messages)
        else:
            token_ids = model.tokenizer.encode(prompt)
        check_length(token_ids, model.backend.max_length, model.context_length)
        return token_ids

    def requests(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        prediction: str | None = None,
        speculation: SpeculationParams | None = None,
    ) -> list[Request]:
        """Return a request for each of the ``params.n`` answers to a prompt, for :meth:`scheduler`.

        May be called while another thread runs the scheduler.

        Args:
            prompt_ids: At least one token.
            params: How tokens are chosen.
            prediction: See :meth:`generate`.
            speculation: What these answers want of speculation; by default what the LLM was made for.

        Raises:
            UsageError: Something of it cannot be honoured.
            ContextLengthError: The prompt leaves no room for an answer.
        """
        model, size = self._model, self._model.vocab_size
        check_length(prompt_ids, model.backend.max_length, model.context_length)
        if not prompt_ids or not all(0 <= token_id < size for token_id in prompt_ids):
            raise UsageError(f"the prompt needs at least one token, and each must be from 0 to {size - 1}")
        compiled = compile_params(params, self._vocabulary)
        seed = self._entropy() if params.seed is None else params.seed
        encode = partial(model.tokenizer.encode, add_special=False)
        predicted = tuple(encode_beginning(encode, prediction, model.backend.max_length)) if prediction else ()
        if predicted and self._stepper.drafter is None:
            raise UsageError("prediction is given, but nothing drafts from it; let the draft be 'ngram' or a model")
        limit = self._stepper.num_speculative_tokens
        wish = as_wish(speculation or SpeculationParams(), limit, self.drafters)
        return [
            Request(object(), tuple(prompt_ids), compiled, seed, choice, predicted, wish) for choice in range(params.n)
        ]

    def _requests(self, prompt: Prompt, params: SamplingParams, prediction: str | None, *, chat: bool) -> list[Request]:
        """Return a request for each answer; whatever can be wrong with it is raised here, before any is served."""
        return self.requests(self.encode(prompt, chat=chat), params, prediction=prediction)

    def _run(self, requests: Sequence[Request]) -> Iterator[tuple[Answer, tuple[EmittedToken, ...]]]:
        return run(self._stepper, requests, max_sequences=self._max_sequences, clock=self._clock)

    def _stream(self, request: Request) -> Iterator[StreamChunk]:
        for answer, tokens in self._run([request]):
            yield StreamChunk(tokens, None if answer.finish_reason is None else self.output(answer))
            _raise_error(answer)

    def output(self, answer: Answer) -> GenerationOutput:
        """Return what a caller gets of an answer that has ended; once, for the store keeps it."""
        if self._store is not None:
            self._store.add([token.token_id for token in answer.emitted])
        problem = None if self._store is None else self._store.problem
        limit = self._stepper.num_speculative_tokens
        return account(answer, drafter=self._drafter_name, limit=limit, store_problem=problem, load_s=self._load_s)


def _raise_error(answer: Answer) -> None:
    if answer.error is not None:
        raise answer.error
