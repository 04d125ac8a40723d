"""Two vocabularies side by side: which tokens they share, and one numbering for the tokens of both."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from outrider.models.byte_vocabulary import ByteVocabulary
from outrider.models.tokenizer import Tokenizer

# Control tokens that do the same in the chat templates of different families. Text ends come last: where one token has
# to stand for either, the one that ends a turn is what an answer ends with.
_TURN_STARTS = ("<|im_start|>", "<start_of_turn>")
_ENDS = ("<|im_end|>", "<end_of_turn>", "<|eot_id|>", "<|end|>", "<EOT>", "<|endoftext|>", "<eos>", "</s>")


class JointVocabulary:
    """The tokens of a target and of a draft. Joint ids are the target's ids, then the draft's tokens that it lacks.

    Tokens are the same if they add the same bytes to a text, however they are spelled and numbered. Control tokens are
    the same if they have one name, or one part in a chat: to begin a turn, or to end one.

    Args:
        target: The target's tokenizer.
        target_size: How many ids the target can say.
        draft: The draft's tokenizer.
        draft_size: How many ids the draft can say.

    Attributes:
        target: The target's tokens as bytes.
        draft: The draft's tokens as bytes.
        joint_ids: ``[draft_size]`` the joint id of every token of the draft; -1 for control tokens that the target
            does not share. Several tokens may have one id.
        size: One more than the highest joint id.
    """

    def __init__(self, target: Tokenizer, target_size: int, draft: Tokenizer, draft_size: int) -> None:
        self.target = ByteVocabulary(target, target_size)
        self.draft = ByteVocabulary(draft, draft_size)
        joint_ids = np.full(draft_size, -1, dtype=np.intp)
        self._own_bytes: list[bytes] = []
        for draft_id, data in enumerate(self.draft.token_bytes):
            if data:
                joint_ids[draft_id] = self.target.ids.get(data, target_size + len(self._own_bytes))
                if joint_ids[draft_id] >= target_size:
                    self._own_bytes.append(data)
        for draft_id, target_id in _same_controls(self.draft, self.target).items():
            joint_ids[draft_id] = target_id
        self._draft_controls = _same_controls(self.target, self.draft)
        self.joint_ids: NDArray[np.intp] = joint_ids
        self.size = target_size + len(self._own_bytes)

    @property
    def target_size(self) -> int:
        """How many joint ids are the target's."""
        return len(self.target.token_bytes)

    @property
    def draft_size(self) -> int:
        """How many tokens the draft has."""
        return len(self.draft.token_bytes)

    @property
    def shared_ids(self) -> NDArray[np.intp]:
        """The target's tokens that the draft can say, in order."""
        ids: NDArray[np.intp] = np.unique(self.joint_ids)
        return ids[(ids >= 0) & (ids < self.target_size)]

    def token_bytes(self, joint_id: int) -> bytes:
        """Return what a token adds to a text; nothing for control tokens."""
        own = joint_id - self.target_size
        return self.target.token_bytes[joint_id] if own < 0 else self._own_bytes[own]

    def draft_control(self, joint_id: int) -> int | None:
        """Return the draft's control token that does what the target's does, if there is one."""
        return self._draft_controls.get(joint_id)


def _same_controls(ours: ByteVocabulary, theirs: ByteVocabulary) -> dict[int, int]:
    """Return, for our control tokens, their tokens of the same name or else of the same part in a chat."""
    named = {theirs.tokenizer.pieces[i]: i for i in theirs.tokenizer.special_ids if i < len(theirs.token_bytes)}
    found = {}
    for token_id in ours.tokenizer.special_ids:
        if token_id >= len(ours.token_bytes):
            continue
        piece = ours.tokenizer.pieces[token_id]
        part = next((part for part in (_TURN_STARTS, _ENDS) if piece in part), ())
        same = next((name for name in (piece, *part) if name in named), None)
        if same is not None:
            found[token_id] = named[same]
    return found
