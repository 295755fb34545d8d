"""The action installs beside interpreters that have another setuptools than its own build asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Installs the publisher and the package as the step `prepare` does, but for torch, and prints what the tests import.
INSTALL = """
import os, subprocess, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from action import environment
folder = Path(sys.argv[2])
python = environment.make_environment(folder / "venv", os.environ)
environment.install_publisher(python, folder, os.environ)
present = environment.present_packages(python)
environment.present_packages = lambda _: [*present, "torch"]
environment.install_tested(python, folder, os.environ)
code = "import setuptools, ci_autotest.cli; print('installed beside', setuptools.__version__)"
subprocess.run([str(python), "-I", "-c", code], check=True)
"""
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]


def interpreter(version: str) -> str:
    """Return a CPython of this version, of pyenv's or on PATH."""
    found = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    path = str(found[-1]) if found else shutil.which(f"python{version}")
    if path is None:
        pytest.skip(f"there is no CPython {version} here")
    return path


def install(python: str, folder: Path) -> str:
    done = subprocess.run(
        [python, "-I", "-c", INSTALL, str(ROOT), str(folder)], cwd=folder, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.heavy
@pytest.mark.parametrize("version", VERSIONS)
def test_install__beside_a_plain_environment_with_an_old_setuptools__works(version: str, tmp_path: Path):
    subprocess.run([interpreter(version), "-m", "venv", str(tmp_path / "callers")], check=True)
    callers = str(tmp_path / "callers" / "bin" / "python")
    if version in {"3.12", "3.13"}:  # `venv` bundles none there
        subprocess.run([callers, "-m", "pip", "install", "--quiet", "setuptools==69.0.3"], check=True)
    said = install(callers, tmp_path)
    assert said in {"installed beside 65.5.0", "installed beside 69.0.3"}


@pytest.mark.heavy
def test_install__beside_a_prefix_of_its_own__works(tmp_path: Path):
    """As conda's: a whole interpreter, no environment, whose setuptools lies in its own library."""
    assert install(interpreter("3.10"), tmp_path).startswith("installed beside 6")


@pytest.mark.heavy
def test_install__beside_the_system_s__works(tmp_path: Path):
    if not Path("/usr/lib/python3/dist-packages/setuptools").is_dir() or not Path("/usr/bin/python3").exists():
        pytest.skip("there is no system Python with a setuptools here")
    assert install("/usr/bin/python3", tmp_path).startswith("installed beside ")
