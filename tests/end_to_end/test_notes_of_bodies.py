"""``note``: what a body says about its case is shown with the finding."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from ci_autotest import note
from ci_autotest.errors import AuthorError
from tests.projects import Project, environment

if TYPE_CHECKING:
    from pathlib import Path

BODY = """
from ci_autotest import note


@autotest(n=3, profiles=[])
def noted():
    size = random(2, 9).to(int)
    note(f"size {size.value()}")
    x = random_tensor(1, dim0=size)
    note("two\\nlines | and a bar")
    return torch.tanh(x)
"""


def test_run__finding_of_a_body_with_notes__shows_them_everywhere(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(BODY)
    project.write("kernels.py", "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x) + 1\n")
    project.substitute({"torch.tanh": "kernels.tanh"})
    done = project.run()
    (finding,) = project.report()["findings"]
    first, second = finding["notes"]
    assert first.startswith("size ")
    assert second == "two lines | and a bar"
    for text in (done.said, finding["message"], (tmp_path / "autotest-report" / "junit.xml").read_text("utf-8")):
        assert f"  notes: {first}; {second}" in text
    page = (tmp_path / "autotest-report" / "findings" / finding["id"] / "README.md").read_text("utf-8")
    assert f"{first}; two lines &#124; and a bar" in page


def test_note__many_and_long__are_cut(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(BODY.replace("return", "for n in range(30):\n        note('x' * 1000)\n    return"))
    project.write("kernels.py", "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x) + 1\n")
    project.substitute({"torch.tanh": "kernels.tanh"})
    project.run()
    (finding,) = project.report()["findings"]
    assert len(finding["notes"]) == 10
    assert max(map(len, finding["notes"])) == 300


def test_note__outside_a_test__is_refused():
    with pytest.raises(AuthorError, match=r"note\(\) was called outside a test"):
        note("nowhere")


def test_run__crash_of_a_body_with_notes__shows_them(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(BODY)
    project.write("kernels.py", "import os\n\n\ndef tanh(x):\n    os.abort()\n")
    project.substitute({"torch.tanh": "kernels.tanh"})
    done = project.run()
    (finding,) = project.report()["findings"]
    assert (finding["kind"], len(finding["notes"])) == ("crash", 2)
    assert f"  notes: {finding['notes'][0]}" in done.said


def test_pytest__finding_of_a_body_with_notes__shows_them(tmp_path: Path):
    project = Project(tmp_path)
    project.tests(BODY.replace("def noted", "def test_noted"), "test_all.py")
    project.write("kernels.py", "import torch\n\n\ndef tanh(x):\n    return torch.tanh(x) + 1\n")
    project.substitute({"torch.tanh": "kernels.tanh"})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_all.py"], cwd=tmp_path,
        env=environment({}), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "  notes: size " in done.stdout
