"""What there is to choose from: which drafts, how many tokens of them, in which shape, verified by which rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.engine.sequence import Rule
from outrider.sampling import SamplingParams

# The lengths to try of a model, of one with another vocabulary, and of what costs nothing.
_MODEL_LENGTHS, _OTHER_VOCABULARY_LENGTHS, _LOOKUP_LENGTHS = (2, 4, 8, 12), (4, 8, 12), (4, 16, 64)
_TREE_DEPTH, _TREE_TOKENS = 6, 15


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to speculate, or not to, in the words of ``LLM``.

    Attributes:
        drafts: What drafts, by reference; nothing at all is plain decoding.
        num_speculative_tokens: The most draft tokens of a round after one another; None for the engine's own limits.
        draft_tree: The most in all, if they branch; 0 for chains.
        rule: How drafts of sampled text are verified.
    """

    drafts: tuple[str, ...] = ()
    num_speculative_tokens: int | None = None
    draft_tree: int = 0
    rule: Rule = "auto"

    @property
    def name(self) -> str:
        """Short, for tables."""
        if not self.drafts:
            return "plain"
        limit = "" if self.num_speculative_tokens is None else f", {self.num_speculative_tokens}"
        tree = f", tree of {self.draft_tree}" if self.draft_tree else ""
        rule = "" if self.rule == "auto" else f", {self.rule}"
        return " + ".join(draft.rsplit("/", 1)[-1].removesuffix(".gguf") for draft in self.drafts) + limit + tree + rule


PLAIN = Choice()


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something that can draft for the target.

    Attributes:
        reference: What the user calls it.
        is_model: Whether it is a model rather than a drafter that needs none.
        is_other_vocabulary: Whether its tokens are not the target's.
    """

    reference: str
    is_model: bool = False
    is_other_vocabulary: bool = False


def choices(contestants: Sequence[Contestant], params: SamplingParams, rule: Rule) -> list[Choice]:
    """Return all that is worth measuring, plain decoding first.

    Lengths are those that matter by the closed forms at the costs of real pairs; between them speed hardly changes.
    Trees take part where a draft is compared with what the target says, greedily and with shared noise. Of the rules
    that a user leaves open, each takes part once.
    """
    found = [PLAIN]
    is_shared = rule == "coupled" or (rule == "auto" and params.seed is not None)
    for one in contestants:
        if not one.is_model:
            found += [Choice((one.reference,), length, rule=rule) for length in _LOOKUP_LENGTHS]
            continue
        lengths = _OTHER_VOCABULARY_LENGTHS if one.is_other_vocabulary else _MODEL_LENGTHS
        found += [Choice((one.reference,), length, rule=rule) for length in lengths]
        if not one.is_other_vocabulary and (params.is_greedy or is_shared):
            found.append(Choice((one.reference,), _TREE_DEPTH, _TREE_TOKENS, rule))
        if not one.is_other_vocabulary and rule == "auto" and not params.is_greedy:
            others: tuple[Rule, ...] = ("token", "block" if is_shared else "coupled")  # auto is the third
            found += [Choice((one.reference,), lengths[-2], rule=other) for other in others]
        found.append(Choice((one.reference, "ngram"), None, rule=rule))
    return found
