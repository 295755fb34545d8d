"""What the shell offers for a test and for a candidate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ci_autotest.config import BUILT_IN
from ci_autotest.discovery import families
from tests.projects import environment

FILE = """
import nowhere

import ci_autotest
from ci_autotest import autotest


@autotest(n=3)
def exp(): ...


@ci_autotest.autotest()
def expand(): ...


def helper(): ...


class TestIt:
    @autotest()
    def abs(self): ...
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    (made / "a.py").write_text(FILE, encoding="utf-8")
    (made / "broken.py").write_text("def", encoding="utf-8")
    (made / "autotest.yml").write_text("candidates: [{name: mykernels, backend: torch}]\n", encoding="utf-8")
    (made / "other.yml").write_text("candidates: 3\n", encoding="utf-8")
    return made


def offered(folder: Path, *words: str) -> list[str]:
    """Return what the shell gets for the last of the words, as bash asks for it."""
    asked = {"_CI_AUTOTEST_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("ci-autotest", *words))}
    done = subprocess.run(
        [sys.executable, "-m", "ci_autotest"],
        cwd=folder, env=environment({**asked, "COMP_CWORD": str(len(words))}), capture_output=True, text=True,
        timeout=100, check=True,
    )  # fmt: skip
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


OF_S = ("signal", "sparse", "special", "shape")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("run", "a.py::"), ["a.py::exp", "a.py::expand", "a.py::TestIt::abs"]),
        (("run", "a.py::expa"), ["a.py::expand"]),
        (("draws", "a.py::exp"), ["a.py::exp", "a.py::expand"]),
        (("run", "broken.py::"), []),
        (("run", "missing.py::x"), []),
        (("run", "builtin"), ["builtin:suite", "builtin:opinfo", "builtin:modules", "builtin:overloads", "builtin"]),
        (("run", "builtin:opinfo/s"), [*(f"builtin:opinfo/{n}" for n in OF_S), "builtin:opinfo/s"]),
        (("list", "builtin:suite::po"), [f"builtin:suite::{name}" for name in families() if name.startswith("po")]),
        (("run", "--candidate", "my"), ["mykernels"]),
        (
            ("run", "--config", "other.yml", "--candidate", "torch"),
            [name for name in BUILT_IN if name.startswith("torch")],
        ),
        (("doctor", "oneflo"), ["oneflow"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_completion__words__offers(folder: Path, words: tuple[str, ...], found: list[str]):
    assert offered(folder, *words) == found


def test_completion__script_of_bash__is_one_that_bash_takes(tmp_path: Path):
    script = subprocess.run(
        [sys.executable, "-m", "ci_autotest"],
        cwd=tmp_path, env=environment({"_CI_AUTOTEST_COMPLETE": "bash_source"}), capture_output=True, text=True,
        timeout=100, check=True,
    ).stdout  # fmt: skip
    done = subprocess.run(["bash", "-n"], input=script, text=True, env=os.environ, check=False, timeout=100)
    assert (done.returncode, "_ci_autotest_completion" in script) == (0, True)
