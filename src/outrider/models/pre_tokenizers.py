"""How byte-level vocabularies cut text into words before merging, by the name that GGUF gives the rule.

The rules are those of the models' own tokenizers: https://huggingface.co/Qwen/Qwen2.5-0.5B/blob/main/tokenizer.json and
its like for the other names. Only ``default`` is llama.cpp's own, which converters write when they know no better.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_TIKTOKEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """A rule for cutting text into words.

    Attributes:
        splits: Regular expressions applied one after the other; what they match becomes a word of its own.
        nfc: Whether text is brought to Unicode normal form C first.
        ignore_merges: Whether a word that is a token is taken whole, however it could be merged.
        add_bos: Whether texts begin with bos where the file does not say.
    """

    splits: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Return the rule as the tokenizers library wants it."""
        steps = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in self.splits]
        return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def normalizer(self) -> normalizers.Normalizer | None:
        """Return what happens to a text before it is cut."""
        return normalizers.NFC() if self.nfc else None


_GPT2_RULE = PreTokenizer((_GPT2,))
_SMOLLM_RULE = PreTokenizer((r"\p{N}", _GPT2))
_QWEN2_RULE = PreTokenizer((_TIKTOKEN % 1,), nfc=True)
_LLAMA3_RULE = PreTokenizer((_TIKTOKEN % 3,), ignore_merges=True, add_bos=True)
_DEFAULT_RULE = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))

PRE_TOKENIZERS = {
    "default": _DEFAULT_RULE,
    "gpt-2": _GPT2_RULE,
    "llama-bpe": _LLAMA3_RULE,
    "llama-v3": _LLAMA3_RULE,
    "llama3": _LLAMA3_RULE,
    "qwen2": _QWEN2_RULE,
    "deepseek-r1-qwen": _QWEN2_RULE,
    "smollm": _SMOLLM_RULE,
}
