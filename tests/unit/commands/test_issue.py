"""``ci-autotest issue``: a finding as a bug report, without a word of ci-autotest."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from ci_autotest.commands.issue import issue
from ci_autotest.errors import UsageError
from ci_autotest.report import report_json
from tests.report_samples import misaligned

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    report_json.write(misaligned(), tmp_path / "report.json")
    return tmp_path


def test_issue__folder_or_id__is_a_report_of_the_same_finding(output: Path):
    (finding,) = misaligned().findings
    texts = [io.StringIO(), io.StringIO()]
    assert issue(finding.id, output, texts[0]) == 0
    assert issue(str(output / "findings" / finding.id), output / "elsewhere", texts[1]) == 0
    text = texts[0].getvalue()
    assert text == texts[1].getvalue()
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings[1:] == ["## Describe the bug", "## To reproduce", "## Versions"]
    assert finding.program in text
    assert "Which side is wrong: " in text
    assert "ci-autotest" not in text.replace("ci_autotest", "")


def test_issue__unknown_finding__names_the_nearest(output: Path):
    (finding,) = misaligned().findings
    with pytest.raises(UsageError, match=f"Did you mean '{finding.id}'"):
        issue(finding.id[:-1], output, io.StringIO())
