"""Rebuilds a tokenizer from the metadata of a GGUF file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, models, normalizers

from outrider.models.fields import Fields, shown
from outrider.models.merges import checked_merges, merges_from_scores
from outrider.models.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from outrider.models.tokenizer import END_PIECES, MAX_TOKENS, Tokenizer, TokenKind, add_tokens

_MAX_PIECE = 1024  # characters; deriving merges takes the square of a piece's length
_KEY = "tokenizer.ggml."


def build_tokenizer(metadata: Fields) -> Tokenizer:
    """Return the tokenizer that the metadata describe.

    Raises:
        ModelFileError: The metadata lack something, contradict themselves or name an unsupported rule.
    """
    kind = metadata.text(_KEY + "model")
    pieces = _pieces(metadata)
    kinds = _kinds(metadata, len(pieces))
    if kind == "gpt2":
        rule = _pre_tokenizer(metadata)
        backend, add_bos = _byte_level(metadata, pieces, rule), rule.add_bos
    elif kind == "llama":
        backend, add_bos = _sentencepiece(metadata, pieces, kinds), True
    else:
        raise metadata.error(
            f"tokenizer model {shown(kind)} is not supported; gpt2 (byte-level BPE) and llama (SentencePiece) are: "
            "use another model"
        )
    # Unless a space is put first: runs of spaces that are tokens are found as SentencePiece finds them, spelled U+2581.
    in_spelling = kind == "llama" and not metadata.flag(_KEY + "add_space_prefix", default=True)
    add_tokens(backend, _added_tokens(pieces, kinds, in_spelling=in_spelling))
    bos_id, eos_id, *others = (_special_id(metadata, name, len(pieces)) for name in ("bos", "eos", "eot", "eom"))
    named_ends = [token_id for token_id in (eos_id, *others) if token_id is not None]
    control = np.flatnonzero(kinds == TokenKind.CONTROL).tolist()
    return Tokenizer(
        backend,
        pieces,
        kinds.tolist(),
        "byte_level" if kind == "gpt2" else "sentencepiece",
        bos_id=bos_id,
        eos_ids=[*named_ends, *(token_id for token_id in control if pieces[token_id] in END_PIECES)],
        prefix_ids=_around(metadata, "add_bos_token", bos_id, default=add_bos),
        suffix_ids=_around(metadata, "add_eos_token", eos_id, default=False),
    )


def _pieces(metadata: Fields) -> list[str]:
    pieces = metadata.values.get(_KEY + "tokens")
    if not isinstance(pieces, list) or not 0 < len(pieces) <= MAX_TOKENS:
        count = len(pieces) if isinstance(pieces, list) else shown(pieces)
        raise metadata.error(f"{_KEY}tokens holds {count} strings; it must hold 1 to {MAX_TOKENS}")
    longest = max(map(len, pieces))
    if longest > _MAX_PIECE:
        raise metadata.error(f"{_KEY}tokens has a token of {longest} characters; the limit is {_MAX_PIECE}")
    return [piece or f"[EMPTY_{token_id}]" for token_id, piece in enumerate(pieces)]


def _kinds(metadata: Fields, num_tokens: int) -> NDArray[np.int64]:
    kinds = metadata.values.get(_KEY + "token_type")
    if kinds is None:
        return np.full(num_tokens, TokenKind.NORMAL, np.int64)
    if not isinstance(kinds, np.ndarray) or kinds.dtype.kind not in "iu" or kinds.size != num_tokens:
        raise metadata.error(f"{_KEY}token_type is {shown(kinds)}; it must hold {num_tokens} integers, one per token")
    if not ((kinds >= TokenKind.NORMAL) & (kinds <= TokenKind.BYTE)).all():
        raise metadata.error(f"{_KEY}token_type goes from {kinds.min()} to {kinds.max()}; the types are 1 to 6")
    return kinds.astype(np.int64)


def _special_id(metadata: Fields, name: str, num_tokens: int) -> int | None:
    key = f"{_KEY}{name}_token_id"
    return metadata.integer(key, 0, num_tokens - 1) if metadata.has(key) else None


def _around(metadata: Fields, key: str, token_id: int | None, *, default: bool) -> list[int]:
    if not metadata.flag(_KEY + key, default=default):
        return []
    if token_id is None:
        if not metadata.has(_KEY + key):
            return []
        raise metadata.error(f"{_KEY}{key} is true, but the file does not say which token that is; convert it anew")
    return [token_id]


def _vocabulary(metadata: Fields, pieces: Sequence[str]) -> dict[str, int]:
    vocabulary = {piece: token_id for token_id, piece in enumerate(pieces)}
    if len(vocabulary) != len(pieces):
        twice = next(piece for token_id, piece in enumerate(pieces) if vocabulary[piece] != token_id)
        raise metadata.error(f"token {shown(twice)} occurs twice in {_KEY}tokens; convert the model anew")
    return vocabulary


def _added_tokens(
    pieces: Sequence[str], kinds: NDArray[np.int64], *, in_spelling: bool
) -> list[tuple[int, AddedToken]]:
    # An unknown token is matched like a control token, as llama.cpp does.
    special = (kinds == TokenKind.CONTROL) | (kinds == TokenKind.UNKNOWN)
    added = np.flatnonzero(special | (kinds == TokenKind.USER_DEFINED)).tolist()
    return [
        (i, AddedToken(pieces[i], normalized=in_spelling and not special[i], special=bool(special[i]))) for i in added
    ]


# --- byte-level BPE


def _pre_tokenizer(metadata: Fields) -> PreTokenizer:
    name = metadata.text(_KEY + "pre", "default")
    if name not in PRE_TOKENIZERS:
        raise metadata.error(
            f"pre-tokenizer {shown(name)} is not supported; {', '.join(sorted(PRE_TOKENIZERS))} are: use another model"
        )
    return PRE_TOKENIZERS[name]


def _byte_level(metadata: Fields, pieces: Sequence[str], rule: PreTokenizer) -> tokenizers.Tokenizer:
    vocabulary = _vocabulary(metadata, pieces)
    merges = metadata.values.get(_KEY + "merges")
    if not isinstance(merges, list):
        raise metadata.error(f"{_KEY}merges is {shown(merges)}; it must hold strings: convert the model anew")
    pairs = checked_merges(merges, vocabulary, metadata)
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=rule.ignore_merges))
    normalizer = rule.normalizer()
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = rule.build()
    return backend


# --- SentencePiece BPE


def _sentencepiece(metadata: Fields, pieces: Sequence[str], kinds: NDArray[np.int64]) -> tokenizers.Tokenizer:
    vocabulary = _vocabulary(metadata, pieces)
    scores = metadata.values.get(_KEY + "scores")
    if not isinstance(scores, np.ndarray) or scores.size != len(pieces) or not np.isfinite(scores).all():
        raise metadata.error(
            f"{_KEY}scores is {shown(scores)}; it must hold {len(pieces)} finite numbers, one per token: "
            "convert the model anew"
        )
    _check_byte_pieces(metadata, pieces, kinds)
    has_bytes = bool((kinds == TokenKind.BYTE).sum() == 256)
    unknown = _special_id(metadata, "unknown", len(pieces))
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab=vocabulary,
            merges=merges_from_scores(pieces, kinds, scores),
            byte_fallback=has_bytes,
            unk_token=None if unknown is None else pieces[unknown],
            fuse_unk=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "\u2581")]
    if metadata.flag(_KEY + "add_space_prefix", default=True):
        steps.insert(0, normalizers.Prepend("\u2581"))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _check_byte_pieces(metadata: Fields, pieces: Sequence[str], kinds: NDArray[np.int64]) -> None:
    spelled = {f"<0x{byte:02X}>" for byte in range(256)}
    for token_id in np.flatnonzero(kinds == TokenKind.BYTE).tolist():
        if pieces[token_id] not in spelled:
            raise metadata.error(
                f"token {token_id} is a byte spelled {shown(pieces[token_id])}; it must be <0x00> to <0xFF>"
            )
