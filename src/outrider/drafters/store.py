"""Past outputs on disk, for drafts only: what is in it can slow an answer down, never change it.

One file per model, in a directory of the user's choice that only the user may read. The file is a log: a header, then
one record per output, with its length and checksum. Writers take a lock; readers need none, for what is not whole
fails its checksum. Nothing that is wrong with a file is an error: it is noted, and drafting does without.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from outrider.drafters.lookup import Match
from outrider.drafters.past_texts import PastTexts
from outrider.errors import UsageError

VERSION = 1
_MAGIC = b"outrider past texts "
_RECORD = Struct("<II")  # number of tokens, CRC-32 of their bytes
_MAX_RECORD = 1 << 20
# The shortest record takes 5 bytes a token; a store is rewritten when it holds too many tokens.
_MOST_BYTES_PER_TOKEN, _SLACK_BYTES = 8, 1 << 12
_LOCK_ATTEMPTS, _LOCK_PAUSE_S = 100, 0.02
_LAST_BYTES = 64
_SHORTEST = 8  # tokens; of shorter outputs there is nothing to learn


class TextStore:
    """Texts that a model has produced, kept between runs and shared between processes.

    Args:
        directory: Made if need be, readable by its owner only.
        key: Of the model and its vocabulary; names the file.
        vocab_size: Ids beyond are taken for damage.
        max_tokens: When there are more, the older half is dropped.

    Attributes:
        problem: What was wrong with the store when it was last read or written, in words; None if nothing was.

    Raises:
        UsageError: ``max_tokens`` is not positive, or the key is no plain name.
    """

    def __init__(self, directory: Path, key: str, *, vocab_size: int, max_tokens: int = 1_000_000) -> None:
        if max_tokens < 1 or not key.isalnum():
            raise UsageError(f"a store of {max_tokens} tokens named {key!r}; give at least 1, and letters and digits")
        self.path = directory / f"{key}.texts"
        self.problem: str | None = None
        self._header = _MAGIC + f"{VERSION} {key}\n".encode()
        self._vocab_size = vocab_size
        self._max_tokens = max_tokens
        self._file_id: tuple[int, int] | None = None
        self._end, self._last = 0, b""  # of what was read, in the file, and what stands before it
        self._texts = PastTexts()
        self.refresh()

    @property
    def num_tokens(self) -> int:
        """How many tokens can be drafted from."""
        return self._texts.num_tokens

    @property
    def num_bytes(self) -> int:
        """Memory taken."""
        return self._texts.num_bytes

    def find(self, context: Sequence[int]) -> tuple[Match, list[int]] | None:
        """See :meth:`outrider.drafters.past_texts.PastTexts.find`."""
        return self._texts.find(context)

    def refresh(self) -> None:
        """Read what other processes have added."""
        try:
            file = self._open(os.O_RDONLY)
            try:
                self._read(file, is_locked=False)
            finally:
                os.close(file)
        except FileNotFoundError:
            pass
        except OSError as error:
            self.problem = f"{self.path} cannot be read: {error.strerror or error}"

    def add(self, token_ids: Sequence[int]) -> None:
        """Remember an output, on disk if that can be done."""
        token_ids = token_ids[: min(self._max_tokens, _MAX_RECORD)]
        if len(token_ids) < _SHORTEST:
            return
        body = np.asarray(token_ids, "<u4").tobytes()
        self.problem = None  # what was damaged is cut off by the next who writes; what lasts is said again
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked() as file:
                if self._read(file, is_locked=True):
                    self._append(file, _RECORD.pack(len(token_ids), zlib.crc32(body)) + body)
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror or error}; this answer is not kept"

    def _open(self, flags: int) -> int:
        """Open the file, and nothing else that may stand in its place: a pipe would have us wait for ever."""
        file = os.open(self.path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "it is no file; remove it")
        return file

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for appending while no other process does; it may have been replaced while we waited."""
        while True:
            file = self._open(os.O_RDWR | os.O_CREAT)
            try:
                self._lock(file)
                if os.fstat(file).st_ino == self.path.stat().st_ino:
                    yield file
                    return
            finally:
                os.close(file)

    def _lock(self, file: int) -> None:
        """Wait for other writers, which take milliseconds; not for ever, since one may have been stopped."""
        for _ in range(_LOCK_ATTEMPTS):
            if _try_lock(file):
                return
            time.sleep(_LOCK_PAUSE_S)
        raise TimeoutError(errno.ETIMEDOUT, "another process has held its lock for seconds")

    def _read(self, file: int, *, is_locked: bool) -> bool:
        """Take in the records not read before, up to one that is damaged; return whether the file is of our kind.

        What is merely cut off at the end may be on its way from another process, unless the lock is ours.
        """
        status = os.fstat(file)
        file_id = (status.st_dev, status.st_ino)  # which a new file may have from one that was removed
        if self._file_id != file_id or os.pread(file, len(self._last), self._end - len(self._last)) != self._last:
            self._file_id = file_id
            self._end, self._last, self._texts = 0, b"", PastTexts()
        if status.st_size == 0:
            return True
        if status.st_size > _MOST_BYTES_PER_TOKEN * self._max_tokens + _SLACK_BYTES:
            self.problem = f"{self.path} has {status.st_size} bytes, more than a store; remove it"
            return False
        if self._end == 0:
            found = os.pread(file, len(self._header), 0)
            if found != self._header and self._header.startswith(found):
                return True
            if found != self._header:
                what = "was written by another version" if found.startswith(_MAGIC) else "is no store of past texts"
                self.problem = f"{self.path} {what}; remove it, or name another directory"
                return False
            self._end, self._last = len(self._header), self._header[-_LAST_BYTES:]
        data = os.pread(file, status.st_size - self._end, self._end)
        texts, num_good = _records(data, self._vocab_size)
        if texts:
            self._texts.add(np.concatenate([part for text in texts for part in (text, _GAP)])[:-1])
        self._end += num_good
        self._last = (self._last + data[:num_good])[-_LAST_BYTES:]
        if _is_whole(data[num_good:]) or (is_locked and num_good < len(data)):
            self.problem = f"{self.path} is damaged from byte {self._end} on; what follows is not used"
        return True

    def _append(self, file: int, record: bytes) -> None:
        """Write a record behind what is whole. The lock is held, so what is not whole is nobody's work in progress."""
        start = self._end or len(self._header)
        if self._texts.num_tokens + len(record) // 4 > self._max_tokens and self._end:
            self._rewrite(file, record)
            return
        os.ftruncate(file, self._end)
        try:
            if not self._end:
                _write(file, self._header, 0)
            _write(file, record, start)
        except OSError:
            os.ftruncate(file, self._end)  # half a record is none
            raise
        self._read(file, is_locked=True)

    def _rewrite(self, file: int, record: bytes) -> None:
        """Replace the file by one with the newer half of it and a record; readers see either the old or the new."""
        data = os.pread(file, self._end - len(self._header), len(self._header))
        kept: list[bytes] = [record]
        texts, _ = _records(data, self._vocab_size)
        size = len(record)
        for text in reversed(texts):
            body = text.astype("<u4").tobytes()
            size += _RECORD.size + len(body)
            if size > 2 * self._max_tokens:  # bytes: half as many tokens
                break
            kept.append(_RECORD.pack(len(text), zlib.crc32(body)) + body)
        temporary = self.path.with_suffix(f".{os.getpid()}.new")
        new = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write(new, self._header + b"".join(reversed(kept)), 0)
            os.replace(temporary, self.path)
            self._read(new, is_locked=True)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(new)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_whole(data: bytes) -> bool:
    """Whether there is a record, damaged or not, or the beginning of what is none."""
    if len(data) < _RECORD.size:
        return False
    count: int = _RECORD.unpack_from(data)[0]
    return count > _MAX_RECORD or len(data) >= _RECORD.size + 4 * count


_GAP = np.array([-1], np.int32)


def _write(file: int, data: bytes, place: int) -> None:
    while data:
        written = os.pwrite(file, data, place)
        data, place = data[written:], place + written


def _records(data: bytes, vocab_size: int) -> tuple[list[NDArray[np.int32]], int]:
    """Return the texts of a log up to the first record that is not whole, and how many bytes they take."""
    texts: list[NDArray[np.int32]] = []
    place = 0
    while place + _RECORD.size <= len(data):
        count, checksum = _RECORD.unpack_from(data, place)
        body = data[place + _RECORD.size : place + _RECORD.size + 4 * count]
        if not 0 < count <= _MAX_RECORD or len(body) < 4 * count or zlib.crc32(body) != checksum:
            break
        ids = np.frombuffer(body, "<u4")
        if ids.max() >= vocab_size:
            break
        texts.append(ids.astype(np.int32))
        place += _RECORD.size + len(body)
    return texts, place
