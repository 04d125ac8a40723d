"""Next-token laws of one passage by the llama.cpp compiled for this machine, as float32 rows on stdout.

Runs in the environment that setup.py makes, with llama-cpp-python's bindings, and knows nothing of Outrider. Reads one
JSON document from stdin: model (a path), token_ids, and first: the laws wanted are those after tokens ``first ..``.
"""

from __future__ import annotations

import json
import sys

import llama_cpp
import numpy as np


def main() -> None:
    task = json.load(sys.stdin)
    token_ids, first = task["token_ids"], task["first"]
    # One thread: the results do not depend on how many there are, and one does not suffer from neighbours.
    model = llama_cpp.Llama(
        task["model"], n_ctx=len(token_ids), n_threads=1, n_threads_batch=1, flash_attn=True, verbose=False
    )
    laws = np.empty((len(token_ids) - first, model.n_vocab()), np.float32)
    model.eval(token_ids[:first])
    for row, token_id in enumerate(token_ids[first:]):  # one decoding step each, as when it generates
        model.eval([token_id])
        laws[row] = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(model.ctx, -1), (model.n_vocab(),))
    sys.stdout.buffer.write(laws.tobytes())


if __name__ == "__main__":
    main()
