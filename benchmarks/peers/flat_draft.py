"""A copy of a GGUF model whose laws are flatter: its last norm is scaled, and so are all logits.

    python -m benchmarks.peers.flat_draft MODEL.gguf COPY.gguf [FACTOR]

A draft that is close to its target and yet refused often enough for an audit to see what an engine does then.
"""

from __future__ import annotations

import shutil
import sys

from gguf import GGUFReader

FACTOR = 0.7


def main() -> None:
    source, copy, *factor = sys.argv[1:]
    shutil.copy(source, copy)
    reader = GGUFReader(copy, "r+")
    [norm] = [tensor for tensor in reader.tensors if tensor.name == "output_norm.weight"]
    norm.data[:] *= float(factor[0]) if factor else FACTOR


if __name__ == "__main__":
    main()
