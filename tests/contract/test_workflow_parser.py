"""GitHub's own parser takes the action and every workflow, and says no where there is a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workflow_parser import errors_of

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "action.yml", *sorted(ROOT.glob("workflows/*.yml")), *sorted(ROOT.glob(".github/workflows/*.yml"))]
WORKFLOW = """
on: push
jobs:
  a:
    runs-on: ubuntu-latest
    steps:
      - {run: echo, if: "${{ foo.bar }}"}
"""


def test_parser__action_and_workflows__finds_nothing():
    assert errors_of([str(path) for path in FILES]) == {str(path): [] for path in FILES}
    assert len(FILES) >= 8


def test_parser__planted_faults__finds_each(tmp_path: Path):
    workflow, action = tmp_path / "workflow.yml", tmp_path / "action.yml"
    workflow.write_text(WORKFLOW)
    action.write_text((ROOT / "action.yml").read_text("utf-8").replace("inputs.paths }}", "inputs.paths) }}"))
    found = errors_of([str(workflow), str(action)])
    assert [error.rpartition(": ")[0].rpartition(": ")[2] for error in found[str(workflow)]] == [
        "Unrecognized named-value"
    ]
    assert any("Unexpected symbol: ')'" in error for error in found[str(action)])
