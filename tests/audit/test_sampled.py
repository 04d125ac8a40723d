"""Draws meet the drafts that users' rounds do, and those at several places are independent of one another."""

from dataclasses import replace

import pytest
from toy_pairs import WISH, toy_draft, toy_target

from outrider.audit.draws import Drawing, Prefix, WatchedDrafter
from outrider.audit.memory import Memory, RememberedBackend
from outrider.audit.sampled import Pair, SamplingAudit
from outrider.audit.state import Progress
from outrider.drafters.draft_model import DraftModelDrafter
from outrider.sampling import Vocabulary


@pytest.mark.parametrize("rule", ["token", "block", "coupled"])
def test_full_draws_meet_whole_drafts_and_begin_like_any(rule):
    """Every so manieth draw drafts in each round all that a user's would, and goes on to the end of its last round."""
    draft, target = toy_draft(), toy_target()
    drafter = WatchedDrafter(DraftModelDrafter(draft.backend, vocab_size=draft.vocab_size, name="draft"))
    stepper = Pair(target, drafter, 5, 0, rule).stepper(RememberedBackend(Memory(target.backend)))
    vocabulary = Vocabulary(target.tokenizer, target.vocab_size)
    drawing = Drawing(stepper, drafter, WISH.params, vocabulary, num_tokens=3, full_every=2, seed=0)
    draws = list(drawing.draw(Prefix("one", (1, 2, 3, 4, 5)), range(200)))
    full, short = draws[::2], draws[1::2]
    assert {one.draft.depth for draw in full for one in draw.rounds} == {5}
    assert {draw.rounds[0].draft.depth for draw in short} == {2}
    assert {len(draw.token_ids) for draw in short} == {3}
    assert max(len(draw.token_ids) for draw in full) > 5
    for draw in full:
        last = draw.rounds[-1]
        assert last.start < 3 <= len(draw.token_ids) == last.start + last.num_accepted + 1


def test_places_of_one_length_and_one_law_are_not_drawn_from_by_the_same_coins():
    draft = toy_draft()
    drafter = DraftModelDrafter(draft.backend, vocab_size=draft.vocab_size, name="draft")
    pair = Pair(toy_target(), WatchedDrafter(drafter), 3, 0, "coupled")
    audit = SamplingAudit(pair, WISH.params, WISH.budget, WISH.claim)
    progress = Progress()
    told = []
    # Toy models look at the last two tokens only.
    places = [Prefix("one", (1, 2, 3, 4, 5)), Prefix("other", (9, 8, 7, 4, 5))]
    audit.run(places, progress, told.append, lambda: None)
    one, other = progress.tallies
    assert one.num == other.num == WISH.budget.draws // 2
    assert one.joint[1] == other.joint[1]
    assert one.joint[0] != other.joint[0]
    half = WISH.budget.draws // 2
    assert [line.split(": ")[0] for line in told] == ["1 of 2 places (one)", "2 of 2 places (other)"]
    assert told[0].startswith(f"1 of 2 places (one): {half:,} draws, ")


def test_progress_is_told_within_a_place(monkeypatch):
    monkeypatch.setattr("outrider.audit.sampled._TOLD", 40)
    draft = toy_draft()
    drafter = DraftModelDrafter(draft.backend, vocab_size=draft.vocab_size, name="draft")
    pair = Pair(toy_target(), WatchedDrafter(drafter), 3, 0, "token")
    told = []
    audit = SamplingAudit(pair, WISH.params, replace(WISH.budget, draws=120), WISH.claim)
    audit.run([Prefix("one", (1, 2, 3, 4, 5))], Progress(), told.append, lambda: None)
    assert told[:2] == ["1 of 1 places (one): 40 of 120 draws", "1 of 1 places (one): 80 of 120 draws"]
    assert len(told) == 3
