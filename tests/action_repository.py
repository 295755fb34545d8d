"""A checkout of the example, an export of the action and a GitHub on loopback, for tests of the whole action."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.action_runner import ActionRecord, ActionRunner, StepRecord, expressions_entry, job_environ
from tests.fakes.github import NUMBER, REPOSITORY, TOKEN, FakeGithub
from tests.fakes.github_server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
RUN_ID = "4711"
JOB = "alignment"
#: What the job uploads by default.
ARTIFACT = f"ci-autotest-report-{JOB}"
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
def command(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
#: Between a worker and the process of the run is the fork server.
run = next(pid for pid in ancestors(os.getppid()) if b"-m\\0ci_autotest" in command(pid))
with open(f"/proc/{run}/fd/1", "w") as log:
    log.write("\\n::error::forged by a test file\\n::add-mask::a\\n")
seen = [os.environ.get(name, "") for name in os.environ] + list(os.environ)
for pid in ancestors(os.getppid()):
    try:
        seen += pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\\0")
    except OSError:
        pass
pathlib.Path(__file__).with_suffix(".seen").write_text("\\n".join(seen))
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
            github={
                "token": TOKEN, "event_name": "pull_request", "event": json.loads(self.event.read_text("utf-8")),
                "job": JOB, "run_id": run_id,
            },
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


def checked_out(scratch: Path) -> Iterator[Repository]:
    """Yield the example as a repository with a pull request, and files that shadow what the action imports."""
    folder = scratch / "kernels"
    ignored = shutil.ignore_patterns("autotest-report", "__pycache__")
    shutil.copytree(ROOT / "examples" / "kernels", folder, ignore=ignored)
    for file in folder.rglob("autotest_*.py"):
        file.write_text(file.read_text("utf-8") + HOSTILE, "utf-8")
    for name in ("json.py", "torch/__init__.py", "requests.py", "ci_autotest/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit('imported from the workspace')\n", "utf-8")
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
    with serving(FakeGithub(heads={NUMBER: (REPOSITORY, "faster", sha)})) as github:
        yield Repository(folder, export(scratch / "checkout"), event, sha, github, expressions_entry())


def installed(planted: ActionRecord) -> dict[str, StepRecord]:
    """Return the step that installed, so that it is not repeated."""
    return {"prepare": planted.steps["prepare"]}
