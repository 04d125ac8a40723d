"""Wrong ways to apply settings to drafts, most of them shipped by someone."""

from collections.abc import Sequence

import numpy as np
from numpy_shaping import penalise

from outrider.sampling import LawShaper
from outrider.sampling.processors import TokenCounts


class OncePerRound(LawShaper):
    """Every position gets what the committed tokens say (sglang#33643)."""

    def shape(self, logits, draft_ids):
        return np.concatenate([super(OncePerRound, self).shape(row[np.newaxis], ()) for row in logits])


class AtTheBonusOnly(LawShaper):
    """Draft positions get the raw logits (sglang#28200, vllm#42744)."""

    def shape(self, logits, draft_ids):
        shaped = super().shape(logits, draft_ids)
        return np.concatenate([logits[:-1], shaped[-1:]])


class AtTheFirstPositionOnly(LawShaper):
    """Everything after the first token of a round gets the raw logits (ipex-llm#9989)."""

    def shape(self, logits, draft_ids):
        return np.concatenate([super().shape(logits, draft_ids)[:1], logits[1:]])


class Nothing(LawShaper):
    """Settings are dropped, as several engines do with speculation on (TensorRT-LLM#17701)."""

    def shape(self, logits, draft_ids):
        return logits


class OneTokenLate(LawShaper):
    """The last draft token before a position does not count for it."""

    def _shape(self, row, draft_ids):
        return super()._shape(row, draft_ids[:-1])


class OneTokenEarly(LawShaper):
    """The token at a position counts for that position."""

    def shape(self, logits, draft_ids):
        later = [*draft_ids, 0]
        shaped = logits.copy()
        for row in range(len(shaped)):
            self._shape(shaped[row], later[: row + 1])
        return shaped


class WholeDraftEverywhere(LawShaper):
    """Every position counts the whole draft."""

    def shape(self, logits, draft_ids):
        shaped = logits.copy()
        for row in shaped:
            self._shape(row, draft_ids)
        return shaped


class BiasAfterDraftsOnly(LawShaper):
    """The bias is left out on the rows that draft tokens are held against (vllm#42744)."""

    def shape(self, logits, draft_ids):
        shaped = super().shape(logits, draft_ids).copy()
        if len(logits) > 1:
            shaped[:-1, self._compiled.bias_ids] -= self._compiled.biases
        return shaped


class Distinct(LawShaper):
    """A draft that says a token twice counts it once."""

    def _shape(self, row, draft_ids):
        return super()._shape(row, tuple(dict.fromkeys(draft_ids)))


class CountsOfThePrompt(LawShaper):
    """Presence and frequency take the prompt for output."""

    def __init__(self, compiled, prompt_ids):
        super().__init__(compiled, prompt_ids)
        if self._counts is not None:
            for token_id in prompt_ids:
                self._counts.add(token_id)


class ForgetsThePrompt(LawShaper):
    """The repetition penalty sees the output only."""

    def __init__(self, compiled, prompt_ids):
        super().__init__(compiled, ())


class CommitsTwice(LawShaper):
    """Accepted tokens are recorded when drafted and when committed (vmlx-swift#357)."""

    def advance(self, token_id):
        super().advance(token_id)
        if self._counts is not None:
            self._counts.add(token_id)


class RemembersDrafts(LawShaper):
    """Drafts are recorded when shaped, and stay when rejected (vmlx-swift#361)."""

    def shape(self, logits, draft_ids):
        shaped = super().shape(logits, draft_ids)
        if self._counts is not None:
            for token_id in draft_ids:
                self._counts.add(token_id)
        return shaped


class MinTokensInRounds(LawShaper):
    """``min_tokens`` is compared with a number that does not grow within a round (sglang#33643)."""

    def _is_too_short(self, num_draft_ids):
        return super()._is_too_short(0)


class WordsOfTheCommittedOutput(LawShaper):
    """A bad word that begins in the draft is not seen."""

    def _completing_ids(self, draft_ids):
        return super()._completing_ids(())


class EndsWithoutStopTokens(LawShaper):
    """``min_tokens`` keeps back the model's end of sequence, not the stop tokens."""

    def _shape(self, row, draft_ids):
        kept = row.copy()
        super()._shape(row, draft_ids)
        if self._is_too_short(len(draft_ids)):
            row[[*self.params.stop_token_ids]] = kept[[*self.params.stop_token_ids]]
        return True


class PenaltiesBeforeBias(LawShaper):
    """The repetition penalty sees logits without their bias."""

    def _shape(self, row, draft_ids):
        ids, counts = self._counts.after(draft_ids)
        penalise(row, ids, counts, self.params)
        row[self._compiled.bias_ids] += self._compiled.biases
        return True


class FrequencyForPresence(LawShaper):
    """Each occurrence counts for the presence penalty."""

    def _shape(self, row, draft_ids):
        ids, counts = self._counts.after(draft_ids)
        row[ids] -= self.params.presence_penalty * counts
        return True


class MultipliesPositives(LawShaper):
    """The repetition penalty multiplies whatever the sign."""

    def _shape(self, row, draft_ids):
        ids, _ = self._counts.after(draft_ids)
        row[ids] *= self.params.repetition_penalty
        return True


class CountsWithDuplicates(TokenCounts):
    """Hands out every token twice, so that it is penalised twice."""

    def after(self, draft_ids: Sequence[int]):
        ids, counts = super().after(draft_ids)
        return np.tile(ids, 2), np.tile(counts, 2)


class DuplicateCounts(LawShaper):
    """See :class:`CountsWithDuplicates`."""

    def __init__(self, compiled, prompt_ids):
        super().__init__(compiled, prompt_ids)
        self._counts = CountsWithDuplicates(prompt_ids)


class GrammarOfTheCommittedOutput(LawShaper):
    """The mask does not move on within a draft."""

    def _shape(self, row, draft_ids):
        return super()._shape(row, ())


class NoMoreGrammarInDrafts(LawShaper):
    """The grammar is asked about the first position only."""

    def _shape(self, row, draft_ids):
        return bool(draft_ids) or super()._shape(row, draft_ids)


class GrammarOfTheDraftAlone(LawShaper):
    """The state starts anew each round."""

    def advance(self, token_id):
        self._output_ids.append(token_id)


# A mutant and the settings that must give it away.
MUTANTS = [
    *[(OncePerRound, name) for name in ("repetition_penalty", "frequency_penalty", "bad_words", "min_tokens")],
    *[(AtTheBonusOnly, name) for name in ("frequency_penalty", "logit_bias", "allowed_token_ids", "min_tokens")],
    *[(AtTheFirstPositionOnly, name) for name in ("repetition_penalty", "presence_penalty", "bad_words")],
    *[(Nothing, name) for name in ("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias")],
    *[(Nothing, name) for name in ("bad_words", "allowed_token_ids", "min_tokens", "everything")],
    *[(OneTokenLate, name) for name in ("presence_penalty", "bad_words")],
    *[(OneTokenEarly, name) for name in ("presence_penalty", "min_tokens")],
    *[(WholeDraftEverywhere, name) for name in ("frequency_penalty", "min_tokens", "everything")],
    (BiasAfterDraftsOnly, "logit_bias"),
    *[(mutant, "response_format") for mutant in (GrammarOfTheCommittedOutput, NoMoreGrammarInDrafts, Nothing)],
    *[(mutant, "response_format") for mutant in (GrammarOfTheDraftAlone, OneTokenLate, AtTheBonusOnly)],
    (Distinct, "frequency_penalty"),
    *[(CountsOfThePrompt, name) for name in ("presence_penalty", "frequency_penalty")],
    (ForgetsThePrompt, "repetition_penalty"),
    (CommitsTwice, "frequency_penalty"),
    *[(MinTokensInRounds, name) for name in ("min_tokens", "everything")],
    (WordsOfTheCommittedOutput, "bad_words"),
    (EndsWithoutStopTokens, "min_tokens and stop_token_ids"),
    (PenaltiesBeforeBias, "bias and repetition"),
    (FrequencyForPresence, "presence_penalty"),
    (MultipliesPositives, "repetition_penalty"),
    (DuplicateCounts, "frequency_penalty"),
]
