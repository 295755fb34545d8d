"""``make candidates``: installed once, reused while up to date, installed anew when the pins change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from candidates.installation import Result, install, interpreters, version_of
from ci_autotest.environments import RECIPES, Recipe, commands
from tests.projects import environment

HERE = ".".join(map(str, sys.version_info[:2]))
NOTHING = Recipe("nothing", HERE, (), 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Return a folder with one environment, and the result of its installation, which takes seconds."""
    folder = tmp_path_factory.mktemp("candidates")
    return folder, install("it", NOTHING, folder, os.environ)


@pytest.fixture
def folder(whole: tuple[Path, Result], tmp_path: Path) -> Path:
    """Return a folder with that environment, a test's own."""
    shutil.copytree(whole[0], tmp_path / "own", symlinks=True)
    return tmp_path / "own"


def test_install__twice__is_reused(whole: tuple[Path, Result]):
    folder, first = whole
    before = (folder / "it").stat().st_ino
    second = install("it", NOTHING, folder, os.environ)
    assert (first, second) == ((True, f"it: installed in {folder}/it"), (True, f"it: {folder}/it is up to date"))
    assert (version_of(str(folder / "it" / "bin" / "python")), (folder / "it").stat().st_ino) == (HERE, before)


def test_install__pins_have_changed__is_made_anew(folder: Path):
    (folder / "it" / "left").touch()
    (folder / "it" / "pins.txt").write_text("python 2.7\n", encoding="utf-8")
    assert install("it", NOTHING, folder, os.environ).text == f"it: installed in {folder}/it"
    assert not (folder / "it" / "left").exists()


def test_install__by_hand_with_what_is_pinned__is_current(folder: Path):
    (folder / "it" / "pins.txt").unlink()
    assert install("it", NOTHING, folder, os.environ).text == f"it: {folder}/it is up to date"


def test_install__lacks_a_package_that_cannot_be_installed__says_why_and_keeps_the_reason(folder: Path):
    package = f"{folder}/no-such.whl"
    (folder / "it" / "pins.txt").unlink()
    found = install("it", Recipe("it", HERE, (package,), 1), folder, os.environ)
    assert not found.is_installed
    assert found.text.startswith(f"NOT INSTALLED: it: {folder}/it/bin/python -m pip install ended with status 1: ")
    assert "no-such.whl" in found.text
    assert found.text == f"NOT INSTALLED: it: {(folder / 'it.reason').read_text('utf-8').strip()}"
    assert not (folder / "it" / "pins.txt").exists()
    assert install("it", NOTHING, folder, os.environ).is_installed
    assert not (folder / "it.reason").exists()


def test_install__python_is_not_there__says_what_to_install(tmp_path: Path):
    found = install("it", Recipe("it", "3.4", (), 1), tmp_path, {"PATH": "", "PYENV_ROOT": str(tmp_path)})
    assert found == (
        False,
        "NOT INSTALLED: it: it needs CPython 3.4, and neither PATH nor pyenv has a python3.4. "
        "Install it (pyenv install 3.4), and run: make candidates ONLY=it",
    )


def test_interpreters__shim_that_answers_nothing__is_passed_over(tmp_path: Path):
    shim = tmp_path / "python3.4"
    shim.write_text("#!/bin/sh\necho 'pyenv: python3.4: command not found' >&2\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    real = tmp_path / "versions" / "3.4.9" / "bin" / "python"
    real.parent.mkdir(parents=True)
    real.write_text("#!/bin/sh\necho 3.4\n", encoding="utf-8")
    real.chmod(0o755)
    found = list(interpreters("3.4", {"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path)}))
    assert found == [str(real)]


def test_candidates__unknown_name__is_status_2():
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "candidates", "oneflov"],
        cwd=root, env=environment(None), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "there is no candidate 'oneflov'. There are oneflow, paddle, jax, mindspore, torch-1.12.\n"


def test_recipes__every_package__is_pinned_exactly():
    loose = [package for recipe in RECIPES.values() for package in recipe.packages if "==" not in package]
    assert loose == []
    assert all(f".venvs/{name}" in line for name in RECIPES for line in commands(name))
