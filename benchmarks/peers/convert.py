"""Makes of a GGUF file what the other engines read, from the same weights, once.

    python -m benchmarks.peers.convert qwen2.5-coder-1.5b qwen2.5-coder-0.5b

``hf-bf16`` for transformers and vLLM, ``hf-int8`` for vLLM, ``openvino-int8`` and ``openvino-int4`` for OpenVINO GenAI
as optimum-intel compresses by default. They lie under .peers/models, 7 GB for this pair.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from benchmarks.models import locate
from benchmarks.peers.setup import OPENVINO, PEERS, TRANSFORMERS

HF_BF16, HF_INT8, OPENVINO_INT8, OPENVINO_INT4 = "hf-bf16", "hf-int8", "openvino-int8", "openvino-int4"
FORMATS = (HF_BF16, HF_INT8, OPENVINO_INT8, OPENVINO_INT4)


def converted(source: Path, form: str, peers: Path) -> Path:
    """Return the folder of a model in one of ``FORMATS``, made now if it is not there.

    Args:
        source: A GGUF file.
        form: One of ``FORMATS``.
        peers: The folder that setup.py fills.
    """
    folder = peers / "models" / source.stem / form
    if not folder.exists():
        print(f"making {folder}", flush=True)
        partial = folder.with_name(f"{form}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        subprocess.run(_command(source, form, partial, peers), check=True)
        partial.rename(folder)
    return folder


def _command(source: Path, form: str, folder: Path, peers: Path) -> list[str | Path]:
    kind, weights = form.split("-")
    original = source if form == HF_BF16 else converted(source, HF_BF16, peers)
    if kind == "hf":
        script = Path(__file__).with_name("convert_hf.py")
        return [peers / TRANSFORMERS / "bin/python", script, weights, original.absolute(), folder]
    programs = peers / OPENVINO / "bin"
    export = [programs / "python", programs / "optimum-cli", "export", "openvino"]  # the environment may have moved
    return [
        *map(str, export),
        "--task",
        "text-generation-with-past",
        "--model",
        original,
        "--weight-format",
        weights,
        folder,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make of GGUF files what the other engines read.")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="catalog names, paths or hf: references")
    parser.add_argument("--peers", type=Path, default=PEERS)
    arguments = parser.parse_args()
    for model in arguments.models:
        for form in FORMATS:
            converted(locate(model), form, arguments.peers)


if __name__ == "__main__":
    main()
