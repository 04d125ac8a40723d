"""Read-only memory maps of model files."""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outrider.errors import ModelFileError


def map_file(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a regular file as a read-only view; they are read from disk when they are looked at.

    A file that is shortened while it is mapped ends the process when the lost part is read: replace model files, do
    not rewrite them in place.

    Raises:
        ModelFileError: The file is missing, empty, not a regular file or may not be read.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ModelFileError(f"{path} is not a regular file; give a .gguf file or a directory with config.json")
        if status.st_size == 0:
            raise ModelFileError(f"{path} is empty; fetch it again")
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # ValueError: no path at all
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"{path} cannot be read: {reason}; check the path") from error
    return np.frombuffer(view, np.uint8)


def give_back_pages(data: NDArray[np.uint8]) -> None:
    """Let go of the memory of a part of a map that has been read; it is read again if it is looked at again.

    Otherwise a model's file would lie in memory beside its packed weights. Arrays that are no part of a map are left
    alone.
    """
    base: object = data
    while isinstance(base, np.ndarray):
        whole, base = base, base.base
    base = base.obj if isinstance(base, memoryview) else base
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        offset = data.ctypes.data - whole.ctypes.data
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE  # whole pages only
        length = (offset + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if length > 0:
            base.madvise(mmap.MADV_DONTNEED, start, length)
