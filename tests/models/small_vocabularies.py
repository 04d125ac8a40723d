"""Small vocabularies of every spelling, as the tokenizers of the code: for texts, and for laws over a few tokens."""

from __future__ import annotations

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

from outrider.models.tokenizer import Tokenizer, TokenKind, add_tokens, byte_level_alphabet

_SPELLED = {byte: char for char, byte in byte_level_alphabet().items()}
BYTES = tuple(bytes((byte,)) for byte in range(256))


def spelled(data: bytes) -> str:
    return "".join(map(_SPELLED.__getitem__, data))


def byte_level(texts, *, controls=(), ends=(), unused=0, rule=None, nfc=False, bos=None) -> Tokenizer:
    """Return a byte-level vocabulary of these tokens, in this order, then control tokens, then padding.

    Longer tokens are merged from the first two that add up to them, in the order given.
    """
    words = [text if isinstance(text, bytes) else text.encode() for text in texts]
    pieces = [*map(spelled, words), *controls]
    backend = tokenizers.Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=_merges(pieces)))
    backend.pre_tokenizer = rule or pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if nfc:
        backend.normalizer = normalizers.NFC()
    return _wrapped(backend, pieces, len(words), "byte_level", controls, ends, unused, bos)


def sentencepiece(texts, *, controls=(), ends=(), has_bytes=True, adds_space=True, bos=None) -> Tokenizer:
    """Return a SentencePiece vocabulary of these tokens, then a token for each byte, then control tokens."""
    words = [text.replace(" ", "\u2581") for text in texts]
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)] if has_bytes else []
    pieces = [*words, *byte_pieces, *controls]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={p: i for i, p in enumerate(pieces)}, merges=_merges(words), byte_fallback=has_bytes, fuse_unk=True
        )
    )
    prefix = [normalizers.Prepend("\u2581")] if adds_space else []
    backend.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "\u2581")])
    kinds = [TokenKind.NORMAL] * len(words) + [TokenKind.BYTE] * len(byte_pieces)
    return _wrapped(backend, pieces, len(kinds), "sentencepiece", controls, ends, 0, bos, kinds)


def _merges(pieces):
    known = set(pieces)
    found = []
    for piece in pieces:
        cuts = [(piece[:n], piece[n:]) for n in range(1, len(piece))]
        found += [pair for pair in cuts if set(pair) <= known][:1]
    return found


def _wrapped(backend, pieces, num_words, spelling, controls, ends, unused, bos, kinds=None):
    kinds = [*(kinds or [TokenKind.NORMAL] * num_words), *[TokenKind.CONTROL] * len(controls)]
    add_tokens(backend, [(pieces.index(c), AddedToken(c, special=True, normalized=False)) for c in controls])
    padding = [f"<unused{n}>" for n in range(unused)]
    bos_id = None if bos is None else pieces.index(bos)
    return Tokenizer(
        backend,
        [*pieces, *padding],
        [*kinds, *[TokenKind.UNUSED] * unused],
        spelling,
        bos_id=bos_id,
        eos_ids=[pieces.index(end) for end in ends],
        prefix_ids=[] if bos_id is None else [bos_id],
    )
