"""What was audited, by hash, and with what."""

from __future__ import annotations

import platform
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from outrider import _core


def model_files(path: Path) -> dict[str, Any]:
    """Return name, size and SHA-256 of a model's file, or of each file of its directory; never where it lies."""
    if path.is_dir():
        return {"name": path.name, "files": [model_files(one) for one in sorted(path.iterdir()) if one.is_file()]}
    digest = sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def versions() -> dict[str, str]:
    """Return the versions of what an audit's numbers depend on."""
    return {
        "outrider": own_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "tokenizers": version("tokenizers"),
        "instruction_set": _core.available_isas()[-1],
        "system": f"{platform.system()} {platform.machine()}",
    }


def own_version() -> str:
    """Return the version of this package."""
    try:
        return version("outrider")
    except PackageNotFoundError:  # run from its sources
        return "not installed"
