"""Build the kernels' own tests (C++, beside this file) and run each; compare the weight types with the gguf package."""

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "kernel-tests"
TESTS = re.findall(r"TEST\((\w+)\),", (HERE / "main.cpp").read_text())
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]


@pytest.fixture(scope="session")
def kernel_tests() -> Path:
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert cmake is not None, "these tests need cmake; pip install cmake"
    configure = [cmake, "-S", ROOT, "-B", BUILD, "-DCMAKE_BUILD_TYPE=Release", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (configure, [cmake, "--build", BUILD, "--target", "kernel_tests", "-j2"]):
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stdout + built.stderr
    return BUILD / "tests" / "native" / "kernel_tests"


@pytest.mark.parametrize("name", TESTS)
def test_native(kernel_tests: Path, name: str) -> None:
    ran = subprocess.run([kernel_tests, name], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", TYPES)
def test_dequantised_values_are_those_of_the_gguf_package(kernel_tests: Path, name: str) -> None:
    quant_type = gguf.GGMLQuantizationType[name]
    block_bytes = gguf.GGML_QUANT_SIZES[quant_type][1]
    data = np.random.default_rng(8).integers(0, 256, size=(1, 4000 * block_bytes), dtype=np.uint8)
    ours = subprocess.run(
        [kernel_tests, "dequantize", name], input=data.tobytes(), capture_output=True, check=True
    ).stdout
    with np.errstate(all="ignore"):  # random scales hold infinities and NaN as well
        theirs = gguf.quants.dequantize(data, quant_type)[0].astype(np.float32)
    np.testing.assert_array_equal(np.frombuffer(ours, np.float32), theirs)


@pytest.mark.usefixtures("kernel_tests")
def test_no_instruction_set_leaks_into_shared_functions() -> None:
    """A weak symbol in a file built for one instruction set could replace the one that every processor runs."""
    objects = list(BUILD.rglob("*_a[vm]x*.cpp.o"))
    if platform.machine() in ("x86_64", "AMD64"):
        names = [
            *("kernels_avx2", "kernels_avx512", "matmul_amx", "matmul_avx2", "matmul_avx512", "matmul_avxvnni"),
            *("ops_avx2", "ops_avx512"),
        ]
        assert sorted(path.name for path in objects) == [f"{name}.cpp.o" for name in names]
    for path in objects:
        symbols = subprocess.run(["nm", "-C", path], capture_output=True, text=True, check=True).stdout
        assert not re.findall(r" [WVu] .*", symbols), path.name
