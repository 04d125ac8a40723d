"""What speculation did, counted. The names are vLLM's, so that dashboards carry over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SourceCounts:
    """Draft tokens of one source."""

    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(slots=True)
class SpeculationCounters:
    """Counts over rounds that had a draft; they only grow.

    Attributes:
        num_drafts: Rounds with at least one draft token.
        num_draft_tokens: Draft tokens proposed.
        num_accepted_tokens: Draft tokens accepted.
        num_accepted_tokens_per_pos: How often a draft token at each place of a draft was accepted, as long as the
            longest draft so far. In a tree the place of a token is its depth.
        num_rejections: Drafts that were left for a token that they did not hold.
        methods: Rounds with at least one draft token, by the rule that verified them.
        sources: Draft tokens proposed and accepted, by the name of what proposed them.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_tokens_per_pos: list[int] = field(default_factory=list)
    num_rejections: int = 0
    methods: dict[str, int] = field(default_factory=dict)
    sources: dict[str, SourceCounts] = field(default_factory=dict)

    def observe(
        self,
        num_drafted: int,
        num_accepted: int,
        *,
        depth: int | None = None,
        was_rejected: bool | None = None,
        method: str | None = None,
    ) -> None:
        """Count one round. A round without draft tokens changes nothing.

        Args:
            num_drafted: Draft tokens, in all branches.
            num_accepted: How many of them were accepted.
            depth: The most that can be accepted; None for a chain, all of them.
            was_rejected: Whether the target had another token to say than the draft's; None for a chain, where some
                draft token is left then.
            method: The rule that verified it, if that is known.

        Raises:
            ValueError: More tokens accepted than drafted, or a negative number; nothing is counted.
        """
        depth = num_drafted if depth is None else depth
        if not 0 <= num_accepted <= depth <= num_drafted:
            raise ValueError(f"{num_accepted} of {num_drafted} draft tokens accepted is impossible")
        if num_drafted == 0:
            return
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        self.num_rejections += num_accepted < num_drafted if was_rejected is None else was_rejected
        if method is not None:
            self.methods[method] = self.methods.get(method, 0) + 1
        per_pos = self.num_accepted_tokens_per_pos
        per_pos.extend([0] * (depth - len(per_pos)))
        for position in range(num_accepted):
            per_pos[position] += 1

    def observe_sources(self, drafted: Iterable[str], accepted: Iterable[str]) -> None:
        """Count the draft tokens of a round, and those of them that were accepted, by their sources."""
        for source in drafted:
            self.sources.setdefault(source, SourceCounts()).num_draft_tokens += 1
        for source in accepted:
            self.sources[source].num_accepted_tokens += 1

    def add(self, other: SpeculationCounters) -> None:
        """Count what another has counted, too."""
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        self.num_rejections += other.num_rejections
        mine, theirs = self.num_accepted_tokens_per_pos, other.num_accepted_tokens_per_pos
        mine.extend([0] * (len(theirs) - len(mine)))
        for position, count in enumerate(theirs):
            mine[position] += count
        for method, rounds in other.methods.items():
            self.methods[method] = self.methods.get(method, 0) + rounds
        for name, counts in other.sources.items():
            own = self.sources.setdefault(name, SourceCounts())
            own.num_draft_tokens += counts.num_draft_tokens
            own.num_accepted_tokens += counts.num_accepted_tokens
