"""A toy model with a real tokenizer: bytes, three control tokens, a chat template."""

from dataclasses import dataclass

import tokenizers

from outrider.backends.toy import HashLM, ToyBackend
from outrider.engine.loading import Model
from outrider.models.chat_template import ChatTemplate
from outrider.models.tokenizer import Tokenizer, TokenKind, byte_level_alphabet

CONTROLS = ("<|start|>", "<|end|>", "<|stop|>")
EOS_ID = 257
TEMPLATE = "{% for m in messages %}<|start|>{{ m.role }}:{{ m.content }}<|end|>{% endfor %}<|start|>"


@dataclass(frozen=True)
class SharpLM:
    """Is sure of what a HashLM finds most likely."""

    model: HashLM

    @property
    def vocab_size(self):
        return self.model.vocab_size

    def weights(self, prefix):
        weights = self.model.weights(prefix)
        return tuple(10**6 if weight == max(weights) else 1 for weight in weights)


def toy_tokenizer(num_unused: int = 0, swapped: bool = False) -> Tokenizer:
    """Return a tokenizer with a token for each byte, then the controls, then padding."""
    letters = list(byte_level_alphabet())
    if swapped:
        letters[65], letters[66] = letters[66], letters[65]
    pieces = [*letters, *CONTROLS, *(f"<unused{n}>" for n in range(num_unused))]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.add_special_tokens([tokenizers.AddedToken(piece, special=True, normalized=False) for piece in CONTROLS])
    kinds = [TokenKind.NORMAL] * 256 + [TokenKind.CONTROL] * 3 + [TokenKind.UNUSED] * num_unused
    return Tokenizer(backend, pieces, kinds, "byte_level", bos_id=None, eos_ids=[EOS_ID])


def toy_model(
    seed: int = 0,
    *,
    name="toy",
    max_length=200,
    num_unused=0,
    swapped=False,
    has_template=True,
    width=None,
    is_sharp=False,
) -> Model:
    """Return a model whose every answer depends on its whole prompt."""
    tokenizer = toy_tokenizer(num_unused, swapped)
    template = ChatTemplate(TEMPLATE, bos_token="", eos_token="<|end|>") if has_template else None
    model = HashLM(width or tokenizer.vocab_size, seed=seed, max_weight=10**6)
    backend = ToyBackend(SharpLM(model) if is_sharp else model, max_length)
    return Model(name, backend, tokenizer, template, context_length=2 * max_length)
