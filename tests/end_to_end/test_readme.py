"""What the README shows works as it stands there: its first test is compared in every case."""

from __future__ import annotations

import re
from pathlib import Path

from tests.projects import Project

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCK = re.compile(r"```python\n(?P<code># autotests/\S+\n.*?)```", re.DOTALL)


def test_readme__first_test__is_compared_in_every_case(tmp_path: Path):
    code = BLOCK.search(README.read_text("utf-8"))
    assert code is not None
    project = Project(tmp_path)
    project.write("autotests/autotest_norms.py", code["code"])
    done = project.run("--candidate", "torch")
    assert done.status == 0, done.said
    assert "20 cases" in done.said
