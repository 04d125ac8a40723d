"""Text from tokens: nothing lost, nothing taken back, no half characters."""

from itertools import pairwise

from engine_fakes import Pieces
from hypothesis import given
from hypothesis import strategies as st

from outrider.engine.text import TextAssembler

STOPS = st.lists(st.text("abé\U0001f642", min_size=1, max_size=4), max_size=3)


@given(st.lists(st.binary(max_size=4), max_size=12))
def test_any_bytes_add_up_to_what_decoding_them_at_once_gives(pieces):
    assembler = TextAssembler(Pieces(pieces))
    text = "".join(assembler.add(index) for index in range(len(pieces))) + assembler.finish()
    assert text == b"".join(pieces).decode("utf-8", errors="replace")


@given(st.text("abé\U0001f642", max_size=12), st.data(), STOPS)
def test_the_text_ends_before_the_first_stop_string_and_never_shows_a_part_of_one(text, data, stops):
    content = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(content)))) | {0, len(content)})
    pieces = [content[start:end] for start, end in pairwise(cuts)]
    assembler = TextAssembler(Pieces(pieces), stops)
    shown = ""
    for index in range(len(pieces)):
        shown += assembler.add(index)
        so_far = content[: cuts[index + 1]].decode(errors="ignore")
        found = [so_far.index(stop) for stop in stops if stop in so_far]
        assert assembler.is_stopped == bool(found)
        if found:
            assert shown == so_far[: min(found)]
            assert assembler.finish() == ""
            return
        assert so_far.startswith(shown)
        held = so_far[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops), "held back without need"
    assert shown + assembler.finish() == text
