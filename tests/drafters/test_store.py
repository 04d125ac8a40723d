"""Past outputs on disk: found again, shared, bounded, private, and harmless whatever becomes of the file."""

import errno
import multiprocessing
import os
import stat

import numpy as np
import pytest

from outrider.drafters import store as module
from outrider.drafters.base import DraftRequest
from outrider.drafters.ngram import NgramDrafter
from outrider.drafters.past_texts import PastTexts
from outrider.drafters.store import TextStore
from outrider.errors import UsageError

TEXT = [5, 9, 2, 6, 1, 8, 3, 7, 4, 10, 12, 11, 14, 13]


def open_store(directory, key="abc", **options):
    return TextStore(directory, key, vocab_size=1000, **options)


def follows(store, context):
    found = store.find(context)
    return None if found is None else found[1]


def test_a_text_is_found_again_here_and_in_another_run(tmp_path):
    store = open_store(tmp_path / "new" / "dir")
    store.add(TEXT)
    for one in (store, open_store(tmp_path / "new" / "dir")):
        assert one.problem is None
        match, after = one.find([77, *TEXT[:6]])
        assert (match.length, match.agreement, after) == (6, 1.0, TEXT[6:])
        assert one.find(TEXT[:3]) is None
        assert one.find([4, 4, 4, 4]) is None
        assert one.find(TEXT) is None  # nothing follows


def test_it_is_for_its_owner_only(tmp_path):
    store = open_store(tmp_path / "private")
    store.add(TEXT)
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_models_do_not_share(tmp_path):
    open_store(tmp_path, "a").add(TEXT)
    assert open_store(tmp_path, "b").num_tokens == 0


def test_texts_do_not_run_into_each_other(tmp_path):
    store = open_store(tmp_path)
    store.add(TEXT)
    store.add(TEXT[::-1])
    assert follows(store, TEXT[-5:]) is None
    assert follows(open_store(tmp_path), TEXT[-5:]) is None


def test_a_token_takes_at_most_fifty_bytes(tmp_path):
    store = open_store(tmp_path)
    rng = np.random.default_rng(0)
    for _ in range(50):
        store.add(rng.integers(0, 1000, 200).tolist())
    assert store.num_tokens >= 10_000
    assert store.num_bytes / 10_000 <= 50
    assert store.path.stat().st_size / 10_000 <= 50


def test_it_is_bounded_and_keeps_the_newest(tmp_path):
    store = open_store(tmp_path, max_tokens=500)
    texts = [[number * 9 + n for n in range(20)] for number in range(100)]
    for text in texts:
        store.add(text)
        assert store.num_tokens <= 520
        assert store.path.stat().st_size <= 4 * 520 + 8 * 30 + 64
    assert store.problem is None
    for one in (store, open_store(tmp_path)):
        assert follows(one, texts[-1][:8]) == texts[-1][8:]
        assert follows(one, texts[0][:8]) is None
    assert [path.name for path in tmp_path.iterdir()] == [store.path.name]


def test_what_another_process_adds_is_seen(tmp_path):
    mine, other = open_store(tmp_path), open_store(tmp_path)
    other.add(TEXT)
    assert mine.find(TEXT[:5]) is None
    mine.refresh()
    assert follows(mine, TEXT[:5]) == TEXT[5:]
    mine.add(TEXT[::-1])
    other.refresh()
    assert mine.num_tokens == other.num_tokens == 2 * len(TEXT) + 2


def _add_many(directory, number):
    store = open_store(directory, max_tokens=2000)
    for _ in range(60):
        store.add([number] * 20)
    assert store.problem is None, store.problem


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add_many, args=(tmp_path, number)) for number in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    store = open_store(tmp_path)
    assert store.problem is None
    assert 900 <= store.num_tokens <= 2100


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_half_a_record_is_dropped_by_the_next_writer(tmp_path, cut):
    store = open_store(tmp_path)
    store.add(TEXT)
    whole = store.path.read_bytes()
    store.add(TEXT[::-1])
    store.path.write_bytes(store.path.read_bytes()[:-cut])
    later = open_store(tmp_path)
    assert later.num_tokens == len(TEXT) + 1
    assert later.problem is None  # it may be on its way
    later.add(TEXT)
    assert "damaged from byte" in later.problem
    assert later.path.read_bytes()[: len(whole)] == whole
    assert open_store(tmp_path).problem is None
    assert open_store(tmp_path).num_tokens == 2 * len(TEXT) + 2


@pytest.mark.parametrize("place", [-4, 70, -60])
def test_a_damaged_record_is_not_used_and_said(tmp_path, place):
    store = open_store(tmp_path)
    store.add(TEXT)
    data = bytearray(store.path.read_bytes())
    data[place] ^= 0x55
    store.path.write_bytes(data)
    later = open_store(tmp_path)
    assert later.find(TEXT[:5]) is None
    later.add(TEXT)
    assert "is damaged" in later.problem or "is no store" in later.problem
    lasts = "is no store" in later.problem
    later.add(TEXT)
    assert (later.problem is not None) == lasts, "what was mended is said once, what lasts each time"
    assert (later.find(TEXT[:5]) is not None) != lasts


def test_ids_beyond_the_vocabulary_are_damage(tmp_path):
    open_store(tmp_path).add([*TEXT, 999])
    smaller = TextStore(tmp_path, "abc", vocab_size=999)
    assert smaller.num_tokens == 0
    assert "is damaged" in smaller.problem


def test_a_store_of_another_version_is_left_alone(tmp_path):
    store = open_store(tmp_path)
    store.path.write_bytes(b"outrider past texts 99 abc\n" + bytes(100))
    before = store.path.read_bytes()
    later = open_store(tmp_path)
    later.add(TEXT)
    assert "was written by another version; remove it" in later.problem
    assert store.path.read_bytes() == before


@pytest.mark.parametrize("junk", [b"#!/bin/sh\n" * 20, bytes(3)])
def test_a_file_of_something_else_is_left_alone(tmp_path, junk):
    (tmp_path / "abc.texts").write_bytes(junk)
    store = open_store(tmp_path)
    store.add(TEXT)
    assert "is no store of past texts" in store.problem
    assert store.path.read_bytes() == junk


def test_another_file_of_the_same_number_is_read_anew(tmp_path):
    store, other = open_store(tmp_path), open_store(tmp_path / "other")
    store.add(TEXT)
    other.add([*TEXT[::-1], *TEXT[::-1]])
    store.path.write_bytes(other.path.read_bytes())  # as when one is removed, and its inode given to the next
    store.refresh()
    assert store.problem is None
    assert follows(store, TEXT[:5]) is None
    assert follows(store, TEXT[:3:-1]) == follows(other, TEXT[:3:-1])
    store.add(TEXT)
    assert open_store(tmp_path).problem is None


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "abc.texts")
    end = os.open(tmp_path / "abc.texts", os.O_RDWR)  # so that to wait would not be for ever
    store = open_store(tmp_path)
    assert "cannot be read: it is no file; remove it" in store.problem
    store.add(TEXT)
    os.close(end)
    assert "cannot be written: it is no file; remove it" in store.problem


def test_a_link_in_its_place_is_not_followed(tmp_path):
    other = open_store(tmp_path / "other")
    other.add(TEXT)
    (tmp_path / "abc.texts").symlink_to(other.path)
    store = open_store(tmp_path)
    assert "cannot be read" in store.problem
    assert store.num_tokens == 0


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    store = open_store(tmp_path)
    store.add(TEXT)
    with store.path.open("r+b") as file:
        file.truncate(1 << 40)
    later = open_store(tmp_path)
    later.add(TEXT)
    assert "more than a store; remove it" in later.problem
    assert later.num_tokens == 0


def test_a_full_disk_costs_the_text_and_nothing_else(tmp_path, monkeypatch):
    store = open_store(tmp_path)
    store.add(TEXT)
    before = store.path.read_bytes()
    write = os.pwrite

    def fills_up(file, data, place):
        if len(data) > 10:
            return write(file, data[:10], place)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.os, "pwrite", fills_up)
    store.add(TEXT[::-1])
    assert "No space left on device; this answer is not kept" in store.problem
    assert store.path.read_bytes() == before
    assert follows(store, TEXT[:5]) == TEXT[5:]


def test_a_read_only_disk_is_read_and_the_text_is_not_kept(tmp_path, monkeypatch):
    open_store(tmp_path).add(TEXT)
    store = open_store(tmp_path)

    def refuse(path, flags, mode):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(module.os, "open", refuse)
    store.add(TEXT[::-1])
    assert "Read-only file system; this answer is not kept" in store.problem
    assert follows(store, TEXT[:5]) == TEXT[5:]


def test_what_cannot_be_opened_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    store = open_store(tmp_path / "file")
    store.add(TEXT)
    assert "cannot be" in store.problem
    (tmp_path / "link.texts").symlink_to(tmp_path / "file")
    linked = open_store(tmp_path, "link")
    linked.add(TEXT)
    assert "cannot be written" in linked.problem
    assert (tmp_path / "file").read_text() == ""


def test_a_lock_that_is_never_released_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LOCK_PAUSE_S", 0.0)
    store, other = open_store(tmp_path), open_store(tmp_path)
    with store._locked():
        other.add(TEXT)
    assert "another process has held its lock" in other.problem


def test_short_outputs_are_not_kept_and_nonsense_is_refused(tmp_path):
    store = open_store(tmp_path)
    store.add(TEXT[:7])
    assert not store.path.exists()
    with pytest.raises(UsageError, match="a store of 0 tokens"):
        open_store(tmp_path, max_tokens=0)
    with pytest.raises(UsageError, match=r"named '../x'"):
        open_store(tmp_path, "../x")


def test_segments_are_merged_and_the_search_is_what_a_rescan_finds():
    rng = np.random.default_rng(1)
    texts = PastTexts()
    added = [rng.integers(0, 4, rng.integers(8, 60)).astype(np.int32) for _ in range(40)]
    for text in added:
        texts.add(text)
    assert len(texts._segments) < 10
    assert texts.num_tokens == sum(len(text) + 1 for text in added)
    for _ in range(50):
        context = rng.integers(0, 4, 12).tolist()
        found = texts.find(context)
        present = any(
            context[-4:] == text[place : place + 4].tolist() for text in added for place in range(len(text) - 4)
        )
        assert (found is not None) == present


def test_a_draft_comes_from_the_store(tmp_path):
    open_store(tmp_path).add([*TEXT, *range(100, 160)])
    drafter = NgramDrafter(store=open_store(tmp_path))
    (draft,) = drafter.propose([DraftRequest(0, TEXT, 10, shaper=None, coins=None)])
    assert draft.token_ids == tuple(range(100, 110))
    assert set(draft.sources) == {"store"}


@pytest.mark.parametrize("length", [0, 5])
def test_a_store_of_a_header_that_is_cut_is_begun_anew(tmp_path, length):
    first = TextStore(tmp_path, "toy", vocab_size=100)
    first.add(list(range(10)))
    first.path.write_bytes(first.path.read_bytes()[:-1])
    second = TextStore(tmp_path, "toy", vocab_size=100)  # which has read the header, and no record
    first.path.write_bytes(first.path.read_bytes()[:length])
    second.add(list(range(20)))
    assert second.problem is None
    assert TextStore(tmp_path, "toy", vocab_size=100).num_tokens > 19
