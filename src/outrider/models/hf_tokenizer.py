"""Loads the tokenizer of a Hugging Face model directory: ``tokenizer.json`` and its companions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models

from outrider.errors import ModelFileError
from outrider.models.chat_template import ChatTemplate
from outrider.models.fields import Fields, shown
from outrider.models.json_file import read_json, read_text
from outrider.models.merges import checked_merges
from outrider.models.tokenizer import END_PIECES, MAX_TOKENS, Spelling, Tokenizer, TokenKind, add_tokens

_MAX_TOKENIZER_BYTES = 1 << 28


def open_tokenizer(directory: Path) -> tuple[Tokenizer, ChatTemplate | None]:
    """Return the tokenizer and the chat template of a model directory.

    Raises:
        ModelFileError: A file is missing, damaged or of a kind that is not supported.
    """
    path = directory / "tokenizer.json"
    if not path.exists():
        raise ModelFileError(
            f"{path} is missing; write it with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"
        )
    data = Fields(read_json(path, _MAX_TOKENIZER_BYTES), path)
    settings = _optional(directory / "tokenizer_config.json")
    added = _added_tokens(data)
    backend = _build(data, added)
    pieces, kinds, spelling = _vocabulary(data, backend, added)
    ids = {piece: token_id for token_id, piece in enumerate(pieces) if piece}
    bos, eos = _token_text(settings, "bos_token"), _token_text(settings, "eos_token")
    bos_id = ids.get(bos)
    if bos_id is None:
        bos_id = next(iter(_ids(_optional(directory / "config.json"), "bos_token_id", len(pieces))), None)
    eos_ids = {ids[eos]} if eos in ids else set()
    for name in ("config.json", "generation_config.json"):
        eos_ids.update(_ids(_optional(directory / name), "eos_token_id", len(pieces)))
    eos_ids.update(ids[piece] for piece in END_PIECES & ids.keys() if kinds[ids[piece]] == TokenKind.CONTROL)
    prefix, suffix = _surroundings(data, backend, len(pieces))
    tokenizer = Tokenizer(
        backend,
        pieces,
        kinds,
        spelling,
        bos_id=bos_id,
        eos_ids=eos_ids,
        prefix_ids=_forced(settings, "add_bos_token", bos_id, prefix),
        suffix_ids=_forced(settings, "add_eos_token", ids.get(eos), suffix),
    )
    return tokenizer, _chat_template(directory, settings, bos, eos)


def _optional(path: Path) -> Fields:
    return Fields(read_json(path) if path.exists() else {}, path)


def _token_text(settings: Fields, key: str) -> str:
    """Return a token's spelling, given as a string or as an object that describes it."""
    value = settings.values.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else ""


def _ids(fields: Fields, key: str, vocab_size: int) -> list[int]:
    """Return token ids given as one number, as a list or not at all."""
    value = fields.values.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    for item in values:
        if isinstance(item, bool) or not isinstance(item, int) or not 0 <= item < vocab_size:
            raise fields.error(f"{key} is {shown(value)}; the vocabulary has ids 0 to {vocab_size - 1}")
    return values


def _forced(settings: Fields, key: str, token_id: int | None, found: list[int]) -> list[int]:
    """Return what goes around a text: the settings overrule the tokenizer's own post-processor."""
    if not settings.has(key) or token_id is None:
        return found
    rest = [other for other in found if other != token_id]
    if not settings.flag(key, default=False):
        return rest
    return [token_id, *rest] if key == "add_bos_token" else [*rest, token_id]


def _surroundings(data: Fields, backend: tokenizers.Tokenizer, vocab_size: int) -> tuple[list[int], list[int]]:
    """Return what the post-processor puts before and after a text, found by letting it."""
    encoding = backend.encode("a", add_special_tokens=True)
    plain = [position for position, special in enumerate(encoding.special_tokens_mask) if not special]
    first, last = (plain[0], plain[-1]) if plain else (len(encoding.ids), len(encoding.ids))
    if max(encoding.ids, default=0) >= vocab_size:
        raise data.error(f"post_processor adds id {max(encoding.ids)}; the vocabulary has ids 0 to {vocab_size - 1}")
    return encoding.ids[:first], encoding.ids[last + 1 :]


def _added_tokens(data: Fields) -> list[tuple[int, AddedToken]]:
    values = data.values.get("added_tokens") or []
    if not isinstance(values, list):
        raise data.error(f"added_tokens is {shown(values)}; it must be a list")
    added = []
    for value in values:
        if not isinstance(value, dict):
            raise data.error(f"added_tokens holds {shown(value)}, not an object")
        token = Fields(value, data.path)
        special = token.flag("special", default=False)
        content = token.text("content")
        if not content:
            raise data.error("an added token is empty; fetch the file again")
        added.append(
            (
                token.integer("id", 0, MAX_TOKENS - 1),
                AddedToken(
                    content,
                    single_word=token.flag("single_word", default=False),
                    lstrip=token.flag("lstrip", default=False),
                    rstrip=token.flag("rstrip", default=False),
                    # A control token is what it is spelled, not what normalisation makes of it.
                    normalized=token.flag("normalized", default=not special) and not special,
                    special=special,
                ),
            )
        )
    return added


def _build(data: Fields, added: Sequence[tuple[int, AddedToken]]) -> tokenizers.Tokenizer:
    """Return the tokenizer, its vocabulary and merges checked here: the library ends the process on some bad ones."""
    model = data.section("model")
    kind = model.text("type", "BPE")
    if kind != "BPE":
        raise data.error(f"tokenizer model {shown(kind)} is not supported, only BPE is; use another model")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.values.get(key):
            raise data.error(f"{key} is {shown(model.values[key])}, which is not supported; use another model")
    vocabulary = _checked_vocabulary(data, model)
    merges = model.values.get("merges")
    if not isinstance(merges, list):
        raise data.error(f"model.merges is {shown(merges)}; it must be a list")
    skeleton = dict(data.values)
    skeleton.update(added_tokens=[], truncation=None, padding=None, model={"type": "BPE", "vocab": {}, "merges": []})
    try:
        backend = tokenizers.Tokenizer.from_str(json.dumps(skeleton))
    except Exception as error:  # the library raises nothing more particular
        raise data.error(f"the tokenizers library cannot read it: {str(error)[:200]}; fetch it again") from error
    unknown = model.values.get("unk_token")
    backend.model = models.BPE(
        vocab=vocabulary,
        merges=checked_merges(merges, vocabulary, data),
        unk_token=unknown if isinstance(unknown, str) and unknown in vocabulary else None,
        fuse_unk=model.flag("fuse_unk", default=False),
        byte_fallback=model.flag("byte_fallback", default=False),
        ignore_merges=model.flag("ignore_merges", default=False),
    )
    add_tokens(backend, added)
    return backend


def _checked_vocabulary(data: Fields, model: Fields) -> dict[str, int]:
    vocabulary = model.values.get("vocab")
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= MAX_TOKENS:
        raise data.error(f"model.vocab is {shown(vocabulary)}; it must hold 1 to {MAX_TOKENS} tokens")
    seen = bytearray(MAX_TOKENS)
    for piece, token_id in vocabulary.items():
        if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < MAX_TOKENS:
            raise data.error(f"token {shown(piece)} has id {shown(token_id)}; ids go from 0 to {MAX_TOKENS - 1}")
        if seen[token_id]:
            raise data.error(f"id {token_id} of token {shown(piece)} is given twice; fetch the file again")
        seen[token_id] = 1
    return vocabulary


def _vocabulary(
    data: Fields, backend: tokenizers.Tokenizer, added: Sequence[tuple[int, AddedToken]]
) -> tuple[list[str], list[int], Spelling]:
    """Return pieces and kinds by id, and how pieces spell bytes."""
    spelling = _spelling(data)
    vocabulary = backend.get_vocab(with_added_tokens=True)
    size = max(vocabulary.values()) + 1
    pieces, kinds = [""] * size, [int(TokenKind.UNUSED)] * size
    byte_pieces = {f"<0x{byte:02X}>" for byte in range(256)} if spelling == "sentencepiece" else frozenset()
    for piece, token_id in vocabulary.items():
        pieces[token_id] = piece
        kinds[token_id] = TokenKind.BYTE if piece in byte_pieces else TokenKind.NORMAL
    for token_id, token in added:
        kinds[token_id] = TokenKind.CONTROL if token.special else TokenKind.USER_DEFINED
    return pieces, kinds, spelling


def _spelling(data: Fields) -> Spelling:
    """Tell the kind of vocabulary by its decoder."""
    decoder = data.section("decoder")
    steps = decoder.values.get("decoders", [decoder.values])
    names = {step.get("type") for step in steps if isinstance(step, dict)} if isinstance(steps, list) else set()
    if "ByteLevel" in names:
        return "byte_level"
    if names & {"ByteFallback", "Metaspace"}:
        return "sentencepiece"
    raise data.error(f"decoder {shown(sorted(map(str, names)))} is not supported; ByteLevel and SentencePiece's are")


def _chat_template(directory: Path, settings: Fields, bos: str, eos: str) -> ChatTemplate | None:
    path = directory / "chat_template.jinja"
    source: Any = read_text(path) if path.exists() else settings.values.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {item.get("name"): item.get("template") for item in source if isinstance(item, dict)}
        source = named.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise settings.error(f"chat_template is {shown(source)}; it must be a string")
    return ChatTemplate(source, bos_token=bos, eos_token=eos)
