"""The folders of the examples hide no package: the configuration beside them puts them on the path of imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPILED = "import sys; sys.path.insert(0, sys.argv[1]); import torch; torch.compile(torch.exp, backend='aot_eager')(torch.ones(2))"


def compiled(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", COMPILED, str(folder)], capture_output=True, text=True, check=False)


def test_examples__on_the_path__torch_still_compiles():
    done = compiled(EXAMPLES)
    assert done.returncode == 0, done.stderr


def test_examples__a_folder_has_the_name_of_a_package_that_torch_looks_for__it_does_not(tmp_path: Path):
    (tmp_path / "triton").mkdir()
    if "triton" in sys.modules or compiled(tmp_path).returncode == 0:
        pytest.skip("Triton is installed, and a package hides such a folder")
    assert "triton" in compiled(tmp_path).stderr


def test_examples__no_folder_is_named_as_a_package_of_a_candidate():
    names = {folder.name for folder in EXAMPLES.iterdir() if folder.is_dir()}
    assert names.isdisjoint({"triton", "numba", "torch", "numpy", "jax", "paddle", "oneflow"})
