"""What a test author writes passes strict type checkers: the file that ``init`` writes and the README's examples."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ci_autotest
from tests.npm import installed

ROOT = Path(ci_autotest.__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = {
    "init": (ROOT / "ci_autotest/commands/templates/autotest_first.py").read_text("utf-8"),
    "readme": "\n\n".join(re.findall(r"```python\n(# autotests/.*?)```", README, re.DOTALL)),
}
#: Each line is one mistake: a checker that knows none of the types would let them pass.
WRONG = """
from ci_autotest import autotest, oneof, random_bool, random_tensor, torch

torch.nn.functional.softmax(random_tensor(2), dim=oneof("a", "b"))
random_tensor(ndim="2")
torch.nn.functional.dropout(random_tensor(2), p=random_tensor, training=random_bool())
autotest(n="20")
"""

pytestmark = pytest.mark.heavy
FILES = {**EXAMPLES, "wrong": WRONG}


def mypy(folder: Path) -> list[str]:
    """Return the lines of mypy that name an error."""
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), *names()]
    found = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 1, found.stdout + found.stderr
    return [line for line in found.stdout.splitlines() if ": error: " in line]


def pyright(folder: Path) -> list[str]:
    """Return the lines of pyright that name an error."""
    (folder / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(ROOT)], "typeCheckingMode": "strict", "reportMissingTypeStubs": False})
    )
    command = ["node", installed("pyright", "pyright@1.1.411") / "pyright/index.js", "--pythonpath", sys.executable]
    found = subprocess.run([*command, *names()], check=False, cwd=folder, capture_output=True, text=True, timeout=600)
    assert found.returncode == 1, found.stdout + found.stderr
    return [line for line in found.stdout.splitlines() if " - error: " in line]


def names() -> list[str]:
    return [f"{name}.py" for name in FILES]


@pytest.mark.parametrize("checker", [mypy, pyright], ids=["mypy", "pyright"])
def test_examples_and_mistakes__strict_checker__names_each_mistake_and_nothing_else(checker, tmp_path: Path):
    """One run over all files, because a checker reads all of torch first."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    found = [re.search(r"(\w+)\.py:(\d+)", line) for line in checker(tmp_path)]
    assert {(line[1], int(line[2])) for line in found if line} == {("wrong", number) for number in (4, 5, 6, 7)}
