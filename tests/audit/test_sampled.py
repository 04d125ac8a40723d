"""Draws at several places are independent of one another."""

from toy_pairs import WISH, toy_draft, toy_target

from outrider.audit.draws import Prefix, WatchedDrafter
from outrider.audit.sampled import Pair, SamplingAudit
from outrider.audit.state import Progress
from outrider.drafters.draft_model import DraftModelDrafter


def test_places_of_one_length_and_one_law_are_not_drawn_from_by_the_same_coins():
    draft = toy_draft()
    drafter = DraftModelDrafter(draft.backend, vocab_size=draft.vocab_size, name="draft")
    pair = Pair(toy_target(), WatchedDrafter(drafter), 3, 0, "coupled")
    audit = SamplingAudit(pair, WISH.params, WISH.budget, WISH.claim)
    progress = Progress()
    # Toy models look at the last two tokens only.
    places = [Prefix("one", (1, 2, 3, 4, 5)), Prefix("other", (9, 8, 7, 4, 5))]
    audit.run(places, progress, lambda _text: None, lambda: None)
    one, other = progress.tallies
    assert one.num == other.num == WISH.budget.draws // 2
    assert one.joint[1] == other.joint[1]
    assert one.joint[0] != other.joint[0]
