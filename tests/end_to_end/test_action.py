"""The whole action on the kernel example: real bash, a real installation, a real run.

GitHub is a server on loopback; the job's variables are set as a pull request's job has them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from action.foreign import WITHHELD
from tests.action_repository import ARTIFACT, PLANTED, SECRET
from tests.action_runner import ActionRecord
from tests.fakes.github import TOKEN

if TYPE_CHECKING:
    from tests.action_repository import Repository
    from tests.action_runner import ActionRecord

pytestmark = pytest.mark.heavy


def test_action__planted_kernel__ends_with_the_status_of_the_table(planted: ActionRecord):
    outcomes = {name: step.outcome for name, step in planted.steps.items()}
    assert (planted.status, outcomes) == (
        1,
        {
            "plan": "success",
            "cache": "skipped",  # a machine of the caller's keeps pip's own
            "prepare": "success",
            "step-3": "skipped",
            "install": "skipped",
            "run": "success",
            "upload": "success",
            "publish": "skipped",  # a job that runs tests does not comment
            "step-8": "failure",
        },
    ), "\n".join(step.log for step in planted.steps.values())


def test_action__planted_kernel__writes_every_output(repository: Repository, planted: ActionRecord):
    folder = repository.folder / "autotest-report"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert planted.outputs == {
        "conclusion": "failure",
        "misaligned": str(report["summary"]["misaligned"]),
        "findings": str(len(report["findings"])),
        "report-json": str(folder / "report.json"),
        "artifact-dir": str(folder),
        "artifact-url": f"https://github.test/artifacts/{ARTIFACT}",
        "comment-url": "",
    }
    assert {finding["operator"] for finding in report["findings"]} == {PLANTED}


def test_action__runtime_host__runs_in_the_interpreter_that_is_there(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
):
    runner = repository.runner(tmp_path_factory.mktemp("host") / "scratch")
    record = runner.run({"python": sys.executable, "runtime": "host", "output": "on-host"})
    report = json.loads((repository.folder / "on-host" / "report.json").read_text("utf-8"))
    assert (record.status, record.outputs["conclusion"]) == (1, "failure")
    assert {finding["operator"] for finding in report["findings"]} == {PLANTED}


def test_action__mode_verify__has_the_verdict_in_the_summary_and_the_artifact(
    repository: Repository, tmp_path_factory: pytest.TempPathFactory
):
    (repository.folder / "reference.py").write_text(
        "import torch\n\n\ndef f(x):\n    return torch.softmax(x, -1)\n\n\ndef get_inputs():\n    return [torch.randn(6, 9)]\n"
    )
    (repository.folder / "zeros.py").write_text("import torch\n\n\ndef f(x):\n    return torch.zeros_like(x)\n")
    runner = repository.runner(tmp_path_factory.mktemp("verify") / "scratch")
    given = {"mode": "verify", "paths": "reference.py\nzeros.py", "options": "--forward-only", "output": "verified"}
    record = runner.run({"python": sys.executable, "runtime": "host", **given})
    verdict = json.loads((repository.folder / "verified" / "verdict.json").read_text("utf-8"))
    assert (record.status, record.outputs["conclusion"], verdict["verdict"]) == (1, "failure", "rejected")
    assert "reference.f on candidate: value of" in record.summary


def test_action__planted_kernel__uploads_the_report_and_its_findings(planted: ActionRecord):
    folder = planted.artifacts / ARTIFACT
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert {"report.json", "junit.xml", "summary.md", "comment.md", "findings"} <= {
        path.name for path in folder.iterdir()
    }
    assert [finding["id"] for finding in report["findings"] if not (folder / finding["repro"]).is_file()] == []


def test_action__planted_kernel__shows_the_summary(repository: Repository, planted: ActionRecord):
    assert PLANTED in planted.summary
    assert planted.steps["run"].outputs["findings"] in planted.summary


def test_action__token__is_in_no_step_of_a_job_that_runs_tests(planted: ActionRecord):
    assert [name for name, step in planted.steps.items() if TOKEN in step.environ.values()] == []
    assert [name for name, step in planted.steps.items() if TOKEN in step.log] == []


def test_action__workflow_commands_of_a_test_file__are_not_obeyed(planted: ActionRecord):
    assert "\n::error::forged by a test file\n::add-mask::a\n" in planted.steps["run"].log
    obeyed = [command for step in planted.steps.values() for command in step.commands]
    assert (obeyed[:2], obeyed[-1]) == (
        ["::group::Install ci-autotest", "::endgroup::"],
        "::error title=ci-autotest::ci-autotest ended with 1 (failure).",
    )
    annotations = obeyed[2:-1]
    assert annotations
    assert [line for line in annotations if not line.startswith("::error file=mykernels/normalization.py,line=")] == []


def test_action__runners_files_and_tokens__are_out_of_reach_of_a_test_file(
    repository: Repository, planted: ActionRecord
):
    assert planted.status == 1
    seen = {name for file in repository.folder.rglob("*.seen") for name in file.read_text("utf-8").splitlines()}
    assert {"PATH", "GITHUB_SHA"} <= seen
    assert seen & {*WITHHELD, *(name for name in seen if re.match(r"INPUT_\w+$", name))} == set()
    assert [line for line in seen if TOKEN in line or SECRET in line] == []
    assert any(line.startswith("GITHUB_OUTPUT=") for line in seen)  # the step's own environment was read


def test_action__callers_torch__is_used_and_not_installed_again(planted: ActionRecord):
    python = Path(planted.steps["prepare"].outputs["python"])
    assert not list(python.parents[1].glob("lib/*/site-packages/torch"))
    code = "import ci_autotest, torch; print(ci_autotest.__file__)"
    shown = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert Path(shown.stdout.strip()).is_relative_to(python.parents[1])
