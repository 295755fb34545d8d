"""The whole action on the kernel example: real bash, a real installation, a real run.

GitHub is a server on loopback; the job's variables are set as a pull request's job has them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from action.inputs import WITHHELD
from tests.action_runner import ActionRecord, ActionRunner, StepRecord, expressions_entry, job_environ
from tests.fake_github import BOT, NUMBER, REPOSITORY, TOKEN, FakeGithub, refusal
from tests.fake_github_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parents[2]
RUN_ID = "4711"
#: In the environment of the whole job, as a careless workflow sets it.
SECRET = "s3cret-of-the-job"  # noqa: S105 - it is none
PLANTED = "torch.nn.functional.layer_norm"
#: What a hostile test file does at import: it speaks to the runner, past its worker, and looks around.
HOSTILE = """
import os, pathlib
def ancestors(pid):
    while pid > 1:
        yield pid
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
with open(f"/proc/{os.getppid()}/fd/1", "w") as log:
    log.write("\\n::error::forged by a test file\\n::add-mask::a\\n")
seen = [os.environ.get(name, "") for name in os.environ] + list(os.environ)
for pid in ancestors(os.getppid()):
    try:
        seen += pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\\0")
    except OSError:
        pass
pathlib.Path(__file__).with_suffix(".seen").write_text("\\n".join(seen))
"""
#: A test file that tries each way to look green, or to reach what comes after it; WAY says which.
ATTACKS = {
    "exits with 0": "os._exit(0)",
    "ends the parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "ends the step": "os.kill(step(), signal.SIGKILL)",
    "writes a green report and ends the parent": ("write(GREEN); os.kill(os.getppid(), signal.SIGKILL)"),
    "leaves a daemon that writes green reports": ("daemon(lambda: write(GREEN))"),
    "writes outputs": "pathlib.Path(variable('GITHUB_OUTPUT')).write_text('exit-status=0\\nx<<never\\n')",
    "writes the environment of later steps": (
        "pathlib.Path(variable('GITHUB_ENV')).write_text('BASH_ENV=/tmp/x\\n'); os._exit(0)"
    ),
}
ATTACK = """
import json, os, pathlib, signal, subprocess, sys, time
GREEN = {"schema": "ci-autotest/report/1", "exit_code": 0, "summary": {"misaligned": 0, "findings": 0}, "findings": []}
def step():
    pid = os.getppid()
    while b"/action" not in (line := pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()) or b"ci_autotest" in line:
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid
def variable(name):
    lines = pathlib.Path(f"/proc/{step()}/environ").read_text().split("\\0")
    return next(line.partition("=")[2] for line in lines if line.startswith(name + "="))
def write(report):
    folder = pathlib.Path("attacked"); folder.mkdir(exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report))
def daemon(act):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for _ in range(6000):
                act(); time.sleep(0.01)
        os._exit(0)
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

    def runner(self, scratch: Path, run_id: str = RUN_ID, **options: Any) -> ActionRunner:
        """Return a runner of the action in a job of the pull request."""
        variables = {
            "GITHUB_ACTIONS": "true", "CI": "true", "DEPLOY_TOKEN": SECRET, "GITHUB_API_URL": self.github.base,
            "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_SHA": self.sha, "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.event), "GITHUB_RUN_ID": run_id,
            "GITHUB_RUN_ATTEMPT": "1", "GITHUB_REF": f"refs/pull/{NUMBER}/merge",
            "GITHUB_REF_NAME": f"{NUMBER}/merge", "GITHUB_BASE_REF": "main",
        }  # fmt: skip
        return ActionRunner(
            action=self.action, workspace=self.folder, scratch=scratch, expressions=self.expressions,
            github={"token": TOKEN, "event_name": "pull_request", "event": {}},
            environ=job_environ() | variables, **options,
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
    event.write_text(
        json.dumps({"number": NUMBER, "pull_request": {"number": NUMBER, "head": head, "base": {"ref": "main"}}}),
        "utf-8",
    )
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
            "seal": "success",
            "run": "success",
            "upload": "success",
            "publish": "success",
            "step-5": "failure",
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
    assert PLANTED in planted.summary
    assert planted.steps["run"].outputs["findings"] in planted.summary


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
    assert (obeyed[:2], obeyed[-1]) == (
        ["::group::Install ci-autotest", "::endgroup::"],
        "::error title=ci-autotest::ci-autotest ended with 1 (failure).",
    )
    annotations = obeyed[2:-1]
    assert annotations
    assert [
        line for line in annotations if not line.startswith("::error file=autotests/autotest_kernels.py,line=")
    ] == []


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


@pytest.mark.parametrize(
    ("inputs", "status"),
    [
        ({"candidate": "; touch owned"}, 2),
        ({"candidate": "--output=/etc"}, 2),
        ({"paths": "; rm -rf /"}, 3),
        ({"paths": "--privileged"}, 3),
        ({"device": "-v /:/host"}, 2),
        ({"known": "!!python/object/apply:os.system [touch owned]"}, 2),
        ({"cases": "$(touch owned)"}, 2),
    ],
    ids=lambda value: next(iter(value.values())) if isinstance(value, dict) else str(value),
)
def test_action__hostile_input__is_refused_and_says_no_green(
    repository: Repository, planted: ActionRecord, tmp_path: Path, inputs: dict[str, str], status: int
):
    inputs = {"python": sys.executable, "output": "other", **inputs}
    record = repository.runner(tmp_path / "scratch").run(inputs, installed(planted))
    assert record.status == status, record.steps["run"].log
    assert not (repository.folder / "owned").exists()
    assert record.steps["upload"].outcome == "skipped"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("container-options", "--privileged"),
        ("container-options", "-v /:/host"),
        ("image", "; rm -rf /"),
        ("image", "--privileged"),
    ],
)
def test_action__hostile_container__is_refused_before_anything_is_installed(
    repository: Repository, tmp_path: Path, name: str, value: str
):
    inputs = {"python": sys.executable, "runtime": "container", "image": "a:b", name: value}
    record = repository.runner(tmp_path / "scratch").run(inputs)
    assert (record.status, record.steps["prepare"].outcome) == (2, "failure")
    assert f"the input '{name}' " in record.steps["prepare"].log
    assert not list((tmp_path / "scratch" / "temp").iterdir())


@pytest.mark.parametrize("way", ATTACKS)
def test_action__test_file_that_would_be_green__is_not(
    repository: Repository, planted: ActionRecord, tmp_path: Path, way: str
):
    folder = repository.folder / "attacks"
    body = "from ci_autotest import autotest, random_tensor, torch\n@autotest()\ndef f(): return torch.relu(random_tensor(2))\n"
    folder.mkdir(exist_ok=True)
    shutil.rmtree(repository.folder / "attacked", ignore_errors=True)
    (folder / "autotest_attack.py").write_text(f"{body}{ATTACK}{ATTACKS[way]}\n", "utf-8")
    inputs = {
        "python": sys.executable, "paths": "attacks", "candidate": "torch", "cases": "2", "output": "attacked",
        "comment": "off",
    }  # fmt: skip
    before = repository.github.bodies()
    record = repository.runner(tmp_path / "scratch").run(inputs, installed(planted))
    log = "\n".join(step.log for step in record.steps.values())
    # The daemon's and the outputs' writer do no harm to a run that is green by itself; their traces are gone.
    expected_green = way in {"leaves a daemon that writes green reports", "writes outputs"}
    assert (record.status == 0) is (expected_green and "something else wrote it" not in log), log
    assert repository.github.bodies() == before
    if "writes" in way and "report" not in way:
        assert "that was discarded." in log
    if "daemon" in way:
        assert "the tests left 1 processes running, which were ended." in log


def test_action__test_that_changes_the_publisher__is_not_published(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    module = Path(planted.steps["prepare"].outputs["packages"]) / "requests" / "__init__.py"
    original, before = module.read_text("utf-8"), repository.github.bodies()
    record = repository.runner(tmp_path / "scratch")
    record.inputs = {"github-token": TOKEN}
    try:
        module.write_text(f"{original}\nraise SystemExit('owned')\n", "utf-8")
        done = record.run(
            {"comment": "always"}, {name: planted.steps[name] for name in ("prepare", "seal", "run", "upload")}
        )
    finally:
        module.write_text(original, "utf-8")
    assert (done.steps["publish"].outcome, done.status) == ("failure", 1)
    assert "the files of the publisher are not those that were hashed before the tests" in done.steps["publish"].log
    assert ("owned" in done.steps["publish"].log, repository.github.bodies()) == (False, before)


def test_action__matrix_with_merge__is_one_report_of_the_whole(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    folders = []
    for index in range(2):
        runner = repository.runner(tmp_path / f"leg{index}", matrix={"shard": index + 1}, leg=(index, 2))
        inputs = {
            "python": sys.executable, "shard": f"{index + 1}/2", "fail-on": "never", "artifact-name": "shard",
            "comment": "off", "output": f"leg{index}", "cases": "4",
        }  # fmt: skip
        leg = runner.run(inputs, installed(planted))
        assert leg.status == 0, leg.steps["run"].log
        folders.append(leg.artifacts / f"shard-{index}")
    before = repository.github.bodies(BOT)
    inputs = {
        "mode": "report", "paths": "\n".join(map(str, folders)), "output": "merged", "python": sys._base_executable,
        "artifact-name": "merged", "comment": "always",
    }  # fmt: skip
    record = repository.runner(tmp_path / "merge", run_id=str(int(RUN_ID) + 1)).run(inputs)
    log = "\n".join(step.log for step in record.steps.values())
    assert (record.status, record.outputs["conclusion"]) == (1, "failure"), log
    merged = json.loads((record.artifacts / "merged" / "report.json").read_text("utf-8"))
    whole = json.loads((planted.artifacts / "ci-autotest-report" / "report.json").read_text("utf-8"))
    assert {item["test"] for item in merged["results"]} == {item["test"] for item in whole["results"]}
    assert {item["operator"] for item in merged["findings"]} == {PLANTED}
    assert (record.artifacts / "merged" / "junit.xml").is_file()
    assert len(repository.github.bodies(BOT)) == len(before) + 1  # `merged` is another check than the first
    packages = Path(record.steps["prepare"].outputs["packages"])
    assert not (packages / "torch").exists()


def test_action__token_without_permission__warns_and_fails_nothing(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    done = {name: planted.steps[name] for name in ("prepare", "seal", "run", "upload")}
    repository.github.plant(refusal("GET", "/comments$"))
    record = repository.runner(tmp_path / "scratch").run({"comment": "always"}, done)
    publish = record.steps["publish"]
    assert (publish.outcome, publish.outputs, record.status) == ("success", {"comment-url": ""}, 1), publish.log
    assert "pull-requests: write" in publish.log


def test_action__fork__is_tested_without_a_token_that_writes_and_published_from_another_run(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    from tests.fake_github import Stored  # noqa: PLC0415 - beside its one use

    github, fork, number = repository.github, "stranger/kernels", NUMBER + 1
    github.heads[number] = (fork, "faster", repository.sha)
    github.runs[int(RUN_ID)] = (fork, "faster", repository.sha)
    archive = shutil.make_archive(str(tmp_path / "artifact"), "zip", planted.artifacts / "ci-autotest-report")
    stored = Stored(id=9, name="autotest", run_id=int(RUN_ID), data=Path(archive).read_bytes(), repository=fork)
    github.artifacts.append(stored)
    event = tmp_path / "event.json"
    run = {
        "id": int(RUN_ID), "run_attempt": 1, "head_sha": repository.sha, "head_branch": "faster", "event": "pull_request",
        "head_repository": {"full_name": fork, "owner": {"login": "stranger"}}, "pull_requests": [], "name": "autotest",
    }  # fmt: skip
    event.write_text(json.dumps({"workflow_run": run}), "utf-8")
    runner = repository.runner(tmp_path / "scratch", run_id="9000")
    empty = tmp_path / "empty"
    empty.mkdir()
    runner.workspace = empty
    runner.github |= {"event_name": "workflow_run", "event": {"workflow_run": run}}
    runner.environ |= {
        "GITHUB_EVENT_NAME": "workflow_run", "GITHUB_EVENT_PATH": str(event), "GITHUB_REF_NAME": "main",
        "GITHUB_BASE_REF": "",
    }  # fmt: skip
    record = runner.run({"python": sys._base_executable, "artifact-name": "autotest"})
    log = "\n".join(step.log for step in record.steps.values())
    assert (record.status, record.steps["run"].outcome) == (0, "skipped"), log
    comments = {key: (place, body) for place, key, who, body in github.comments if who == BOT and place == number}
    ((place, body),) = comments.values()
    assert (place, PLANTED in body) == (number, True)
    assert record.outputs["comment-url"].startswith(f"https://github.com/{REPOSITORY}/pull/{number}#issuecomment-")
    assert [name for name, step in record.steps.items() if TOKEN in step.environ.values()] == ["publish"]


def installed(planted: ActionRecord) -> dict[str, StepRecord]:
    """Return the steps that installed and sealed, so that they are not repeated."""
    return {name: planted.steps[name] for name in ("prepare", "seal")}
