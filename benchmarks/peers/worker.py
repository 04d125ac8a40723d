"""The contract between the benchmarks and an engine that runs in an environment and a process of its own.

JSON, one document a line. In: first the settings (``target``, ``draft`` or null, ``ngram``, ``threads``, ``context``),
then requests (``prompt_ids``, ``max_tokens``, ``temperature``, ``stop_ids``). Out: first ``version``, once the model is
loaded, then for each request ``token_ids`` (a token that ends the answer included), ``num_first_tokens`` (how many came
at once with the first), ``first_token_s``, ``decode_s`` (from then to the last), ``num_draft_tokens`` and
``num_accepted_tokens`` (0 where the engine does not count them). Ends with its input.

Workers use this file, the standard library, and their engine, nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]


def serve(load: Callable[[Document], tuple[str, Callable[[Document], Document]]]) -> None:
    """Load an engine and answer requests until there are no more.

    Args:
        load: From settings to a version and to what answers a request.
    """
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as replies:
        os.dup2(2, 1)  # what engines print is not for the benchmark
        version, answer = load(json.loads(sys.stdin.readline()))
        print(json.dumps({"version": version}), file=replies, flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), file=replies, flush=True)


class Clock:
    """Notes when tokens come."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._started_at = self._first_at = self._last_at = now()
        self._num_first = 0

    def see(self, num_tokens: int) -> None:
        """Note that so many tokens have come at once."""
        self._last_at = self._now()
        if not self._num_first:
            self._first_at, self._num_first = self._last_at, num_tokens

    def reply(self, token_ids: list[int], num_draft_tokens: int = 0, num_accepted_tokens: int = 0) -> Document:
        """Return the document about an answer that ended with the last token seen."""
        return {
            "token_ids": token_ids,
            "num_first_tokens": self._num_first,
            "first_token_s": self._first_at - self._started_at,
            "decode_s": self._last_at - self._first_at,
            "num_draft_tokens": num_draft_tokens,
            "num_accepted_tokens": num_accepted_tokens,
        }
