"""What a caller may say about how tokens are chosen and when an answer ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from outrider.errors import UsageError
from outrider.sampling.response_format import grammar_source, is_text


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when to stop. "Off" is ``None`` or empty. Cannot be changed; may be hashed and pickled.

    Every setting means the same with and without speculation: what depends on the text so far is evaluated at every
    draft token with the draft tokens before it. Names and meanings are those of OpenAI's API and vLLM, the order in
    which they act is that of :mod:`outrider.sampling.processors` and :mod:`outrider.sampling.distribution`.

    Attributes:
        temperature: 0 is greedy: the most likely token, the lowest id on a tie, after biases, penalties and masks.
        top_k: Keep the ``top_k`` most likely tokens.
        top_p: Keep the smallest set of most likely tokens whose probability reaches ``top_p``.
        min_p: Keep tokens at least ``min_p`` times as likely as the most likely one.
        typical_p: Keep the smallest set of tokens whose probability reaches ``typical_p``, those first whose surprise
            is closest to the law's entropy (Meister et al., 2202.00666).
        repetition_penalty: Divides the positive logits, and multiplies the negative ones, of every token that occurs
            in the prompt or the output.
        presence_penalty: Subtracted from the logit of every token that occurs in the output.
        frequency_penalty: Subtracted from the logit of a token, once for each time it occurs in the output.
        logit_bias: Added to the logits of these token ids.
        bad_words: Texts not to say. Each is cut into tokens, with and without a space before it, and its last token is
            excluded where the output ends in the others; spelled by other tokens it can still occur, as in vLLM.
        allowed_token_ids: Say these tokens only.
        min_tokens: No end-of-sequence token, stop token or stop string ends the answer within its first
            ``min_tokens`` tokens.
        max_tokens: The most tokens to generate.
        stop: Strings that end the text; the text ends before the first of them.
        stop_token_ids: Tokens that end the answer, as the model's end-of-sequence tokens do; no text comes of them.
        ignore_eos: Go on past end-of-sequence tokens.
        seed: Makes the sampled text reproducible. ``None``: independent randomness for every request.
        n: How many answers to give, each with randomness of its own.
        logprobs: Report the log probability of each token, and of this many of the most likely ones at its place,
            under the law it was chosen from: with everything above applied, but as at temperature 1 without limits if
            greedy, where that law is a certainty.
        prompt_logprobs: The same for the tokens of the prompt, under the model's law as it is.
        response_format: What the answer must look like: OpenAI's ``json_object`` or ``json_schema``, a regular
            expression or a grammar; see :mod:`outrider.sampling.response_format`. An answer that ``max_tokens`` or a
            stop string cuts short is the beginning of one that does.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    bad_words: Sequence[str] = ()
    allowed_token_ids: Sequence[int] | None = None
    min_tokens: int = 0
    max_tokens: int = 256
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    response_format: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in _RANGES and not (value is None and one.default is None):
                _check_number(one.name, value, _RANGES[one.name])
        for name in ("stop", "bad_words"):
            texts = getattr(self, name)
            _check(name, texts, _are(texts, is_text), "non-empty Unicode strings in a list or tuple")
        _check("stop_token_ids", self.stop_token_ids, _are(self.stop_token_ids, _is_id), _IDS)
        allowed = self.allowed_token_ids
        ok = allowed is None or (_are(allowed, _is_id) and len(allowed) > 0)
        _check("allowed_token_ids", allowed, ok, f"None, or {_IDS}, and not empty")
        ok = isinstance(self.logit_bias, Mapping) and _are(tuple(self.logit_bias), _is_id)
        _check("logit_bias", self.logit_bias, ok, "a mapping from token ids, each at least 0, to numbers")
        for token_id, bias in self.logit_bias.items():
            _check_number(f"logit_bias of token {token_id}", bias, _BIAS)
        _check("ignore_eos", self.ignore_eos, isinstance(self.ignore_eos, bool), "True or False")
        if self.response_format is not None and grammar_source(self.response_format) is not None:
            _check("ignore_eos", self.ignore_eos, not self.ignore_eos, f"False, for {_GRAMMAR_ENDS}")
            _check("min_tokens", self.min_tokens, self.min_tokens == 0, f"0, for {_GRAMMAR_ENDS}")
        ok = self.min_tokens <= self.max_tokens
        _check("min_tokens", self.min_tokens, ok, f"at most max_tokens, which is {self.max_tokens}")
        self._keep_copies()

    def _keep_copies(self) -> None:
        """Let nothing that the caller does later to a list or a mapping change what was said."""
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Mapping):
                object.__setattr__(self, one.name, _Frozen(value))
            elif isinstance(value, Sequence) and not isinstance(value, str):
                object.__setattr__(self, one.name, tuple(value))

    @property
    def is_greedy(self) -> bool:
        """Whether the law of every token is the point mass on the most likely one."""
        return self.temperature == 0.0


class _Frozen(Mapping[Any, Any]):
    """A copy of a mapping, which nobody can change."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True, slots=True)
class _Range:
    low: float
    high: float
    limit: str
    is_whole: bool = False
    is_open: bool = False  # at its low end


_IDS = "token ids, each at least 0, in a list or tuple"
_GRAMMAR_ENDS = "response_format decides when an answer may end and when it must"
_BIAS = _Range(-100, 100, "from -100 to 100")
_TOP = _Range(0, 20, "from 0 to 20", is_whole=True)
_RANGES = {
    "temperature": _Range(0, 100, "from 0 (greedy) to 100"),
    "top_k": _Range(1, math.inf, "at least 1; the default keeps every token", is_whole=True),
    "top_p": _Range(0, 1, "above 0 and at most 1", is_open=True),
    "min_p": _Range(0, 1, "from 0 to 1"),
    "typical_p": _Range(0, 1, "above 0 and at most 1", is_open=True),
    "repetition_penalty": _Range(0.01, 100, "from 0.01 to 100; 1 changes nothing"),
    "presence_penalty": _Range(-2, 2, "from -2 to 2"),
    "frequency_penalty": _Range(-2, 2, "from -2 to 2"),
    "min_tokens": _Range(0, math.inf, "at least 0", is_whole=True),
    "max_tokens": _Range(1, math.inf, "at least 1", is_whole=True),
    "seed": _Range(0, 2**64 - 1, "from 0 to 2**64 - 1", is_whole=True),
    "n": _Range(1, 128, "from 1 to 128", is_whole=True),
    "logprobs": _TOP,
    "prompt_logprobs": _TOP,
}


def _check_number(name: str, value: Any, limits: _Range) -> None:
    ok = _is_a(value, Integral if limits.is_whole else Real) and limits.low <= value <= limits.high
    ok = ok and not (limits.is_open and value == limits.low)
    _check(name, value, ok, f"{'a whole number ' if limits.is_whole else ''}{limits.limit}")


def _is_id(value: Any) -> bool:
    return _is_a(value, Integral) and value >= 0


def _is_a(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _are(values: Any, test: Callable[[object], bool]) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(map(test, values))


def _check(name: str, value: object, ok: bool, limit: str) -> None:  # noqa: FBT001
    if not ok:
        raise UsageError(f"{name} is {value!r}; it must be {limit}")
