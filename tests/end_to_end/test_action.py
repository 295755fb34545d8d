"""The whole action on the kernel example: real bash, a real installation, a real run.

GitHub is a server on loopback; the job's variables are set as a pull request's job has them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from action.inputs import WITHHELD
from tests.action_runner import ActionRecord, ActionRunner, expressions_entry, job_environ
from tests.fake_github import BOT, NUMBER, REPOSITORY, TOKEN, FakeGithub, refusal
from tests.fake_github_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
RUN_ID = "4711"
PLANTED = "torch.nn.functional.layer_norm"
#: What a hostile test file does at import: it speaks to the runner, past its worker, and looks around.
HOSTILE = """
import os, pathlib
with open(f"/proc/{os.getppid()}/fd/1", "w") as log:
    log.write("\\n::error::forged by a test file\\n::add-mask::a\\n")
pathlib.Path(__file__).with_suffix(".seen").write_text("\\n".join(os.environ))
"""


@dataclass(frozen=True)
class Repository:
    """A checkout of the example with its event, an export of the action, and GitHub."""

    folder: Path
    action: Path
    event: Path
    sha: str
    github: FakeGithub
    expressions: Path

    def runner(self, scratch: Path, run_id: str = RUN_ID) -> ActionRunner:
        """Return a runner of the action in a job of the pull request."""
        variables = {
            "GITHUB_ACTIONS": "true", "CI": "true", "GITHUB_API_URL": self.github.base,
            "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": self.sha, "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.event), "GITHUB_RUN_ID": run_id,
            "GITHUB_RUN_ATTEMPT": "1", "GITHUB_REF": f"refs/pull/{NUMBER}/merge",
        }  # fmt: skip
        return ActionRunner(
            action=self.action, workspace=self.folder, scratch=scratch, expressions=self.expressions,
            github={"token": TOKEN, "event_name": "pull_request"},
            environ=job_environ() | variables,
        )  # fmt: skip


def git(folder: Path, *argv: str) -> str:
    identity = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(["git", *identity, *argv], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def export(target: Path) -> Path:
    """Copy what a checkout of the action has: what git knows or does not ignore."""
    listed = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, listed):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    return target


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    scratch = tmp_path_factory.mktemp("action")
    folder = scratch / "kernels"
    ignored = shutil.ignore_patterns("autotest-report", "__pycache__")
    shutil.copytree(ROOT / "examples" / "kernels", folder, ignore=ignored)
    for file in folder.rglob("autotest_*.py"):
        file.write_text(file.read_text("utf-8") + HOSTILE, "utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Kernels")
    sha = git(folder, "rev-parse", "HEAD")
    event = scratch / "event.json"
    head = {"sha": sha, "ref": "faster", "repo": {"full_name": REPOSITORY}}
    event.write_text(json.dumps({"number": NUMBER, "pull_request": {"number": NUMBER, "head": head}}), "utf-8")
    expressions = expressions_entry()
    with serving(FakeGithub(heads={NUMBER: (REPOSITORY, "faster", sha)})) as github:
        yield Repository(folder, export(scratch / "checkout"), event, sha, github, expressions)


@pytest.fixture(scope="module")
def planted(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> ActionRecord:
    """Run the action on the example as its users do, with an interpreter that has torch."""
    return repository.runner(tmp_path_factory.mktemp("run") / "scratch").run({"python": sys.executable})


def test_action__planted_kernel__ends_with_the_status_of_the_table(planted: ActionRecord):
    outcomes = {name: step.outcome for name, step in planted.steps.items()}
    assert (planted.status, outcomes) == (
        1,
        {
            "prepare": "success",
            "run": "success",
            "upload": "success",
            "publish": "success",
            "step-4": "failure",
        },
    ), "\n".join(step.log for step in planted.steps.values())


def test_action__planted_kernel__writes_every_output(repository: Repository, planted: ActionRecord):
    folder = repository.folder / "autotest-report"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    comments = repository.github.bodies(BOT)
    assert planted.outputs == {
        "conclusion": "failure",
        "misaligned": str(report["summary"]["misaligned"]),
        "findings": str(len(report["findings"])),
        "report-json": str(folder / "report.json"),
        "artifact-dir": str(folder),
        "artifact-url": "https://github.test/artifacts/ci-autotest-report",
        "comment-url": f"https://github.com/{REPOSITORY}/pull/{NUMBER}#issuecomment-{min(comments)}",
    }
    assert {finding["operator"] for finding in report["findings"]} == {PLANTED}


def test_action__planted_kernel__uploads_the_report_and_its_findings(planted: ActionRecord):
    folder = planted.artifacts / "ci-autotest-report"
    report = json.loads((folder / "report.json").read_text("utf-8"))
    assert {"report.json", "junit.xml", "summary.md", "comment.md", "findings"} <= {
        path.name for path in folder.iterdir()
    }
    assert [finding["id"] for finding in report["findings"] if not (folder / finding["repro"]).is_file()] == []


def test_action__planted_kernel__shows_the_summary(repository: Repository, planted: ActionRecord):
    assert planted.summary == (repository.folder / "autotest-report" / "summary.md").read_text("utf-8")
    assert PLANTED in planted.summary


def test_action__planted_kernel__comments_once(repository: Repository, planted: ActionRecord):
    assert planted.outputs["comment-url"]
    (body,) = repository.github.bodies(BOT).values()
    assert PLANTED in body


def test_action__token__is_in_the_step_that_comments_only(planted: ActionRecord):
    holders = [name for name, step in planted.steps.items() if TOKEN in step.environ.values()]
    assert holders == ["publish"]
    assert [name for name, step in planted.steps.items() if TOKEN in step.log] == []


def test_action__workflow_commands_of_a_test_file__are_not_obeyed(planted: ActionRecord):
    assert "\n::error::forged by a test file\n::add-mask::a\n" in planted.steps["run"].log
    obeyed = [command for step in planted.steps.values() for command in step.commands]
    assert obeyed == [
        "::group::Install ci-autotest",
        "::endgroup::",
        "::error title=ci-autotest::ci-autotest ended with 1 (failure).",
    ]


def test_action__runners_files_and_tokens__are_out_of_reach_of_a_test_file(
    repository: Repository, planted: ActionRecord
):
    assert planted.status == 1
    seen = {name for file in repository.folder.rglob("*.seen") for name in file.read_text("utf-8").splitlines()}
    assert {"PATH", "GITHUB_SHA"} <= seen
    assert seen & {*WITHHELD, *(name for name in seen if name.startswith("INPUT_"))} == set()


def test_action__callers_torch__is_used_and_not_installed_again(planted: ActionRecord):
    python = Path(planted.steps["prepare"].outputs["python"])
    assert not list(python.parents[1].glob("lib/*/site-packages/torch"))
    code = "import ci_autotest, torch; print(ci_autotest.__file__)"
    shown = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True)
    assert Path(shown.stdout.strip()).is_relative_to(python.parents[1])


def test_action__unknown_candidate__ends_with_usage_and_says_no_green(repository: Repository, tmp_path: Path):
    inputs = {"python": sys.executable, "candidate": "; touch owned", "output": "other"}
    record = repository.runner(tmp_path / "scratch").run(inputs)
    assert (record.status, record.outputs["conclusion"]) == (2, "usage"), record.steps["run"].log
    assert not (repository.folder / "owned").exists()
    assert record.steps["upload"].outcome == "skipped"


def test_action__mode_report_without_torch__merges_and_comments(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    before = repository.github.bodies(BOT)
    inputs = {
        "mode": "report", "paths": str(planted.artifacts / "ci-autotest-report"),
        "output": "merged", "python": sys._base_executable, "artifact-name": "merged",
        "comment": "always",
    }  # fmt: skip
    record = repository.runner(tmp_path / "scratch", run_id=str(int(RUN_ID) + 1)).run(inputs)
    log = "\n".join(step.log for step in record.steps.values())
    assert (record.status, record.outputs["findings"]) == (1, planted.outputs["findings"]), log
    python = record.steps["prepare"].outputs["python"]
    code = "import importlib.util; print(importlib.util.find_spec('torch'))"
    assert subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout == "None\n"
    assert repository.github.bodies(BOT).keys() == before.keys()


def test_action__token_without_permission__warns_and_fails_nothing(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    runner = repository.runner(tmp_path / "scratch")
    runner.inputs = {"comment": "always", "github-token": TOKEN}
    runner.steps = {name: planted.steps[name] for name in ("prepare", "run", "upload")}
    repository.github.plant(refusal("GET", "/comments$"))
    (step,) = (step for step in runner.definition["runs"]["steps"] if step.get("id") == "publish")
    runner.run_step(3, step)
    record = runner.steps["publish"]
    assert (record.outcome, record.outputs) == ("success", {"comment-url": ""}), record.log
    assert "The token lacks `pull-requests: write`" in record.log
    assert [command.partition("::no comment")[0] for command in record.commands] == ["::warning title=ci-autotest"]
