"""What an audit of a server will ask, and what that costs, before it starts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from outrider.audit.comparison import LEAST_GROUP
from outrider.audit.statistics import needed_observations

# Few likely ways to go on, and none of them certain: what short answers must be for draws to fall into countable cells.
COMPLETIONS = (
    "heads tails tails heads tails heads heads tails heads",
    "yes no no yes yes no yes no no no yes",
    "3 1 2 2 3 1 1 3 2 1 2 3 3 1",
    "red, blue, blue, green, red, green, blue, red,",
    "A B B A B A A B B A A A B",
    "left right right left up down left up up down right",
)
CHATS = (
    "Toss a coin ten times. Write nothing but H or T, with spaces between.",
    "Say yes or no ten times, at random, with spaces between. Write nothing else.",
    "Write ten random digits from 1 to 3 with spaces between, and nothing else.",
    "Name five colours at random, red, green or blue, with commas between, and nothing else.",
)
# What turned out for these prompts: places in an answer whose next character is open, and cells in all.
_PLACES, _DF = 3, 150
_NUM_EVIDENCE = 12
_LEAST_ANSWERS = 4 * LEAST_GROUP  # to a prompt, of which enough begin alike for any claim
# Of greedy.py, meaning.py and run.py, but for sampled answers.
_REQUESTS_A_PROMPT = 1 + 1 + 1 + 5 + 1 + 2 + 6 + 1
_CHARACTERS_A_TOKEN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An audit's size.

    Attributes:
        prompts: What is continued, or asked in chats; none stands for ours.
        total_variation: What must not go unnoticed.
        budget: Sampled answers of each server; 0 stands for what ``total_variation`` is likely to take, and 200 to a
            prompt at least.
        sampled_tokens: The length of these: a few rounds of drafts.
        greedy_tokens: The length of greedy answers.
        near_tie: The largest gap between two log probabilities that rounding may turn, in nats.
        level: The chance that a right server fails.
        power: The chance that one that is wrong by ``total_variation`` does.
    """

    prompts: tuple[str, ...] = ()
    total_variation: float = 0.05
    budget: int = 0
    sampled_tokens: int = 8
    greedy_tokens: int = 64
    near_tie: float = 0.1
    level: float = 1e-4
    power: float = 0.9

    def claimed(self, num_drawing: int) -> int:
        """Return how many sampled answers with log probabilities are wanted, on top."""
        return self.budget // 4 if num_drawing else self.budget

    def requests(self, num_drawing: int) -> int:
        """Return about how many requests it takes.

        Args:
            num_drawing: From how many servers answers are sampled for comparison: 2 with a baseline, 1 if that is a
                model file, 0 without anything to compare with.
        """
        return num_drawing * self.budget + self.claimed(num_drawing) + max(1, num_drawing) * self._others

    def tokens(self, num_drawing: int) -> int:
        """Return about how many tokens are read and written, at most; see :meth:`requests`."""
        reading = sum(map(len, self.prompts)) // (_CHARACTERS_A_TOKEN * len(self.prompts)) + 1
        others = max(1, num_drawing) * self._others
        sampled = self.requests(num_drawing) - others
        return sampled * (reading + self.sampled_tokens) + others * (reading + self.greedy_tokens)

    def within(self, requests: int, num_drawing: int) -> Plan:
        """Return the plan with a budget: the one it has, or what its claim is likely to take, or what is left."""
        likely = default_budget(self.total_variation, self.level, self.power)
        budget = self.budget or max(likely, _LEAST_ANSWERS * len(self.prompts))
        left = requests - max(1, num_drawing) * self._others
        most = left * 4 // (4 * num_drawing + 1) if num_drawing else left
        return replace(self, budget=max(1, min(budget, most)))

    @property
    def _others(self) -> int:
        """How many requests the other checks send to a server."""
        return len(self.prompts) * _REQUESTS_A_PROMPT


def default_budget(total_variation: float, level: float, power: float) -> int:
    """Return how many sampled answers of each server are likely to show a total variation."""
    observations = needed_observations(total_variation, _DF, level / _NUM_EVIDENCE, power)
    return 2 * observations // _PLACES  # two samples of m are worth m / 2
