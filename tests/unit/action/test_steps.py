"""The steps of the action, one by one; together they run in ``end_to_end/test_action.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from action import steps

ROOT = Path(__file__).resolve().parents[3]
#: Stands where the command line does: prints its arguments, writes a report and ends as it is told.
COMMAND = """
import json, os, pathlib, sys
print("argv", json.dumps(sys.argv[1:]))
print("::error::forged")
report = json.loads(os.environ["REPORT"])
output = next((a.removeprefix("--output=") for a in sys.argv if a.startswith("--output=")), None)
if output and report is not None:
    folder = pathlib.Path(output); folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "summary.md").write_text("# Summary\\n")
sys.exit(int(os.environ["STATUS"]))
"""


@dataclass(frozen=True)
class Job:
    """A job's folder with the runner's files, and an interpreter whose ci_autotest is COMMAND."""

    folder: Path
    python: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def outputs(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()

    def step(self, name: str, **environ: str) -> subprocess.CompletedProcess[str]:
        given = {
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
        }
        return subprocess.run(
            [str(self.python), "-I", str(ROOT / "action"), name], cwd=self.workspace,
            env=given | environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
        )  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "ci_autotest.py").write_text(COMMAND)
    return folder / "bin" / "python"


@pytest.fixture
def job(tmp_path: Path, python: Path) -> Job:
    (tmp_path / "workspace").mkdir()
    for name in ("output", "summary"):
        (tmp_path / name).touch()
    return Job(tmp_path, python)


def report(exit_code: int = 0, misaligned: int = 0, findings: int = 0) -> str:
    return json.dumps({"summary": {"misaligned": misaligned, "findings": findings}, "exit_code": exit_code})


def output(job: Job, name: str) -> str:
    _, _, rest = job.outputs.partition(f"{name}<<")
    return rest.splitlines()[1]


def test_run__misaligned__writes_outputs_and_summary_and_does_not_fail(job: Job):
    done = job.step("run", INPUT_CASES="; rm -rf /", REPORT=report(1, 2, 3), STATUS="1")
    assert done.returncode == 0, done.stdout
    assert 'argv ["run", "--cases=; rm -rf /", "--output=autotest-report", "--"]' in done.stdout
    names = ("exit-status", "conclusion", "misaligned", "findings", "report-json", "artifact-dir")
    folder = job.workspace / "autotest-report"
    assert [output(job, name) for name in names] == [
        "1", "failure", "2", "3", str(folder / "report.json"), str(folder),
    ]  # fmt: skip
    assert job.summary == "# Summary\n"


def test_run__green_command_without_a_report__is_not_green(job: Job):
    done = job.step("run", REPORT="null", STATUS="0")
    assert "::error title=ci-autotest::the command ended with 0, but " in done.stdout
    assert (output(job, "exit-status"), output(job, "artifact-dir")) == ("2", "")


def test_run__report_of_an_earlier_run__does_not_pass_for_this_one(job: Job):
    folder = job.workspace / "autotest-report"
    folder.mkdir()
    (folder / "report.json").write_text(report())
    job.step("run", REPORT="null", STATUS="2")
    assert (
        output(job, "exit-status"),
        output(job, "report-json"),
        output(job, "artifact-dir"),
    ) == ("2", "", "")


def test_run__report_that_says_otherwise__is_not_green(job: Job):
    job.step("run", REPORT=report(1, 1, 1), STATUS="0")
    assert output(job, "exit-status") == "2"


def test_run__no_summary_file__warns_and_goes_on(job: Job):
    done = job.step("run", REPORT=report(), STATUS="0", GITHUB_STEP_SUMMARY="")
    assert "::warning title=ci-autotest::the summary is not shown: " in done.stdout
    assert output(job, "exit-status") == "0"


def test_run__no_output_file__fails_and_says_so(job: Job):
    done = job.step("run", REPORT=report(), STATUS="0", GITHUB_OUTPUT="")
    assert done.returncode == 2
    assert (
        "::error title=ci-autotest::GITHUB_OUTPUT is not set: this step runs under GitHub Actions only." in done.stdout
    )


def test_run__workflow_command_in_foreign_output__stands_behind_the_wall(job: Job):
    lines = job.step("run", REPORT=report(), STATUS="0").stdout.splitlines()
    token = lines[0].removeprefix("::stop-commands::")
    assert lines.index("::error::forged") < lines.index(f"::{token}::")


def test_publish__not_asked_for__does_not_start_the_command(job: Job):
    done = job.step("publish", EXIT_STATUS="0", GITHUB_EVENT_NAME="pull_request", INPUT_COMMENT="failures")
    assert done.stdout == "No comment: the input is 'failures', the run ended with 0, the event is 'pull_request'.\n"


def test_publish__command_fails__warns_and_fails_nothing(job: Job):
    environ = {"EXIT_STATUS": "1", "GITHUB_EVENT_NAME": "pull_request", "ARTIFACT_DIR": "out"}
    done = job.step("publish", **environ, REPORT="null", STATUS="2")
    assert done.returncode == 0
    assert 'argv ["comment", "out"]' in done.stdout
    assert "::warning title=ci-autotest::no comment was written" in done.stdout
    assert output(job, "comment-url") == ""


@pytest.mark.parametrize("status", ["0", "1", "3", "4", "130"])
def test_finish__status_of_the_run__is_the_steps(job: Job, status: str):
    done = job.step("finish", EXIT_STATUS=status)
    assert done.returncode == int(status)
    assert ("::error" in done.stdout) is (status != "0")


@pytest.mark.parametrize("status", ["", "256", "-1", "0 ", "\u0660", "success"])
def test_finish__no_status__fails(job: Job, status: str):
    done = job.step("finish", EXIT_STATUS=status)
    assert done.returncode == 2
    message = "the run left no exit status: an earlier step of this action says why."
    assert done.stdout == f"::error title=ci-autotest::{message}\n"


def test_prepare__inputs_that_cannot_be_meant__stop_before_anything_is_installed(job: Job):
    done = job.step("prepare", INPUT_COMMENT="never", RUNNER_TEMP=str(job.folder))
    assert done.returncode == 2
    assert done.stdout == (
        "::error title=ci-autotest::the input 'comment' is 'never': it is one of failures, always, off.\n"
    )
    assert not list(job.folder.glob("ci-autotest-*"))


def test_prepare__interpreter_too_old__says_which_is_needed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "OLDEST_PYTHON", (99, 0))
    with pytest.raises(steps.StepError, match=r"name one of 3\.10 or newer in the input 'python'"):
        steps.prepare({})


def test_make_environment__in_a_callers_environment__imports_its_packages(job: Job):
    # `python` is an environment with a package of its own: `--system-site-packages` does not show it.
    code = (
        "import os, pathlib, subprocess, sys; sys.path.insert(0, sys.argv[1])\n"
        "from action import steps\n"
        "made = steps.make_environment(pathlib.Path(sys.argv[2]), os.environ)\n"
        "find = 'import importlib.util as u; print(u.find_spec(\"ci_autotest\").origin)'\n"
        "subprocess.run([made, '-I', '-c', find], check=True)"
    )
    argv = [str(job.python), "-I", "-c", code, str(ROOT), str(job.folder / "made")]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == str(
        next(job.python.parents[1].glob("lib/*/site-packages")) / "ci_autotest.py"
    )
