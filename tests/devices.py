"""The toy accelerator of ``tests/end_to_end/devices``: its memory compiled, its package beside a project's tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch

SOURCE = Path(__file__).parent / "end_to_end" / "devices" / "toy_npu"
#: What a compiler takes for an extension of torch 2.13.
_FLAGS = ("-shared", "-fPIC", "-O0", "-std=c++20")


def compiled(folder: Path) -> Path:
    """Return the package with its library, or skip the test where there is no compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("the toy device needs g++: install it, apt-get install g++")
    package = folder / "toy_npu"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    root = Path(torch.__file__).parent
    include = root / "include"
    places = ("-I", str(include), "-I", str(include / "torch/csrc/api/include"), "-L", str(root / "lib"))
    made = [str(package / "memory.cpp"), *places, "-lc10", "-ltorch_cpu", "-o", str(package / "memory.so")]
    done = subprocess.run([compiler, *_FLAGS, *made], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return package
