"""Makes the llama.cpp builds that we are measured against, under .peers: nothing of them comes into our environment.

    python -m benchmarks.peers.setup

* llama_cpp: an environment with the xllamacpp wheel, what most people would install. It is compiled for AVX2.
* llama_cpp_native: llama-server and the library, from the llama.cpp sources in llama-cpp-python's source distribution,
  compiled for this machine with every instruction set it has, and that package's bindings. Ten minutes on two cores.

What is there already is not made again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from benchmarks.peers.llama_cpp import NATIVE, WHEEL

PEERS = Path(".peers")
WHEEL_PACKAGE = "xllamacpp==2026.10.11549"
SOURCE_PACKAGE = "llama-cpp-python==0.3.36"
_CMAKE_OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "GGML_NATIVE": "ON",
    "BUILD_SHARED_LIBS": "ON",
    "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON",  # the program finds its libraries beside it, wherever they are moved
    "LLAMA_BUILD_APP": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_UI": "OFF",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_OPENSSL": "OFF",
}


def make_wheel(folder: Path) -> None:
    """Make an environment with the wheel, or complete one."""
    _environment(folder, WHEEL_PACKAGE)


def make_native(folder: Path) -> None:
    """Make an environment with llama-server, its libraries and their bindings; the sources do not stay."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        tools = _environment(work / "tools", "cmake", "ninja")
        _run(
            tools / "pip", "download", "-q", "--no-deps", "--no-binary", "llama-cpp-python", "-d", work, SOURCE_PACKAGE
        )
        with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
            archive.extractall(work, filter="data")
        source = next(work.glob("*/vendor/llama.cpp"))
        options = [f"-D{name}={value}" for name, value in _CMAKE_OPTIONS.items()]
        make = f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}"
        _run(tools / "cmake", "-S", source, "-B", work / "build", "-G", "Ninja", make, *options)
        _run(tools / "cmake", "--build", work / "build", "--target", "llama-server", "-j", os.cpu_count() or 1)
        _environment(folder, "numpy", "typing-extensions", "diskcache", "jinja2")
        shutil.copytree(source.parents[1] / "llama_cpp", next(folder.glob("lib/python*/site-packages")) / "llama_cpp")
        for file in (work / "build/bin").iterdir():
            shutil.copy2(file, folder / "bin", follow_symlinks=False)


def _environment(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages and return where its programs are."""
    _run(sys.executable, "-m", "venv", folder)
    _run(folder / "bin/pip", "install", "-q", "--disable-pip-version-check", *packages)
    return folder / "bin"


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def main() -> None:
    make_wheel(PEERS / WHEEL)
    if not (PEERS / NATIVE / "bin/llama-server").exists():
        make_native(PEERS / NATIVE)


if __name__ == "__main__":
    main()
