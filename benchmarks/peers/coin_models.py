"""Two models small enough to check by hand: they say ``a`` or ``b``, with the same chances wherever they are asked.

    python -m benchmarks.peers.coin_models FOLDER

writes ``target.gguf``, which says ``a`` with probability 0.9, and ``draft.gguf``, for which the two are alike. Any
engine that loads GGUF files of Llama models must then say ``a`` nine times in ten, with the draft and without it.

The last layer's input is the same for every token: all embeddings are alike and nothing is added to them on the way.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from outrider.models.tokenizer import byte_level_alphabet

TARGET_CHANCE, DRAFT_CHANCE = 0.9, 0.5
_PIECES = [*byte_level_alphabet(), "ab", "<|end|>"]  # some readers want a merge
A, B, VOCAB_SIZE = _PIECES.index("a"), _PIECES.index("b"), len(_PIECES)
_HIDDEN, _HEADS, _INNER, _CONTEXT = 64, 2, 128, 512
_NEVER = -40.0  # a logit: below one in 10**17


def write_coin(path: Path, chance: float) -> None:
    """Write a Llama model that says ``a`` with this chance, and otherwise ``b``."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_HIDDEN)
    writer.add_feed_forward_length(_INNER)
    writer.add_block_count(1)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_rope_dimension_count(_HIDDEN // _HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(1)
    writer.add_vocab_size(VOCAB_SIZE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(_PIECES)
    writer.add_token_types([1] * (VOCAB_SIZE - 1) + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(VOCAB_SIZE - 1)
    writer.add_bos_token_id(VOCAB_SIZE - 1)
    writer.add_add_bos_token(value=False)
    for name, values in _weights(chance).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _weights(chance: float) -> dict[str, NDArray[np.generic]]:
    logits = np.full(VOCAB_SIZE, _NEVER)
    logits[A], logits[B] = math.log(chance), math.log1p(-chance)
    ones = np.ones(_HIDDEN, np.float32)
    weights: dict[str, NDArray[np.generic]] = {
        "token_embd.weight": np.ones((VOCAB_SIZE, _HIDDEN), np.float16),
        "output_norm.weight": ones,
        "output.weight": np.repeat(logits[:, None] / _HIDDEN, _HIDDEN, axis=1).astype(np.float16),
        "blk.0.attn_norm.weight": ones,
        "blk.0.ffn_norm.weight": ones,
    }
    shapes = {"ffn_gate": (_INNER, _HIDDEN), "ffn_up": (_INNER, _HIDDEN), "ffn_down": (_HIDDEN, _INNER)}
    shapes |= {f"attn_{letter}": (_HIDDEN, _HIDDEN) for letter in ("q", "k", "v", "output")}
    return weights | {f"blk.0.{name}.weight": np.zeros(shape, np.float16) for name, shape in shapes.items()}


def main() -> None:
    folder = Path(sys.argv[1])
    for name, chance in (("target", TARGET_CHANCE), ("draft", DRAFT_CHANCE)):
        (folder / name).mkdir(parents=True, exist_ok=True)  # OpenVINO writes its own form of a model beside the file
        write_coin(folder / name / f"{name}.gguf", chance)


if __name__ == "__main__":
    main()
