"""The nightly workflow's issues: its own script, run by bash with a command line of GitHub's that keeps a list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.heavy  # It needs jq.

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = yaml.safe_load((ROOT / "workflows" / "autotest-nightly.yml").read_text("utf-8"))
SCRIPT = WORKFLOW["jobs"]["issues"]["steps"][-1]["run"]
#: Stands where `gh issue list|edit|create` does.
GH = """#!{python}
import json, pathlib, sys
store = pathlib.Path({store!r})
issues = json.loads(store.read_text())
verb, words = sys.argv[2], sys.argv[3:]
option = lambda name: words[words.index(name) + 1]
if verb == "list":
    print(json.dumps([{{"number": number, "title": title}} for number, (title, body) in enumerate(issues)]))
else:
    body = pathlib.Path(option("--body-file")).read_text()
    if verb == "edit":
        issues[int(words[0])][1] = body
    else:
        issues.append([option("--title"), body])
    store.write_text(json.dumps(issues))
"""


def finding(name: str, operator: str, **keys: str) -> dict[str, str]:
    return {"id": name, "operator": operator, "candidate": "kernels", "kind": "value", "outcome": "misaligned", **keys}


def run(folder: Path, findings: list[dict[str, str]]) -> list[list[str]]:
    """Run the script on a report in ``folder``; return the issues as (title, body)."""
    for item in findings:
        (folder / "report" / "findings" / item["id"]).mkdir(parents=True, exist_ok=True)
        (folder / "report" / "findings" / item["id"] / "README.md").write_text(f"about {item['operator']}\n")
    (folder / "report" / "report.json").write_text(json.dumps({"findings": findings}))
    environ = {"PATH": f"{folder}:{os.environ['PATH']}", "RUN": "https://github.test/run", "GH_TOKEN": "x"}
    argv = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", SCRIPT]
    subprocess.run(argv, cwd=folder, env=environ, check=True, timeout=60)
    found: list[list[str]] = json.loads((folder / "issues.json").read_text())
    return found


def test_issues__two_nights__are_one_per_finding_and_updated(tmp_path: Path):
    (tmp_path / "issues.json").write_text(json.dumps([["another", "of a person"]]))
    (tmp_path / "gh").write_text(GH.format(python=sys.executable, store=str(tmp_path / "issues.json")))
    (tmp_path / "gh").chmod(0o755)
    hostile = 'torch.x"; touch owned; "$(touch owned)'
    first = run(
        tmp_path, [finding("a-1", "torch.softmax"), finding("b-2", hostile), finding("c-3", "f", outcome="flaky")]
    )
    titles = ["another", "autotest: torch.softmax on kernels (value)", f"autotest: {hostile} on kernels (value)"]
    assert [title for title, _ in first] == titles
    assert first[1][1] == "Last seen: https://github.test/run\n\nabout torch.softmax\n"
    second = run(tmp_path, [finding("d-4", "torch.softmax"), finding("e-5", "torch.gelu")])
    assert [title for title, _ in second] == [*titles, "autotest: torch.gelu on kernels (value)"]
    assert second[0] == ["another", "of a person"]
    assert not (tmp_path / "owned").exists()
