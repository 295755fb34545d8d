"""The action in more than one job: a matrix with its merge, a fork with the workflow that publishes, a poor token."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.action_repository import ARTIFACT, JOB, PLANTED, RUN_ID, installed
from tests.fakes.github import BOT, NUMBER, REPOSITORY, TOKEN, Stored, refusal

if TYPE_CHECKING:
    from tests.action_repository import Repository
    from tests.action_runner import ActionRecord, ActionRunner

pytestmark = pytest.mark.heavy


def test_action__matrix_with_merge__is_one_report_of_the_whole(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    folders = []
    for index in range(2):
        runner = repository.runner(tmp_path / f"leg{index}", matrix={"shard": index + 1}, leg=(index, 2))
        inputs = {
            "python": sys.executable, "shard": f"{index + 1}/2", "fail-on": "never", "artifact-name": "shard",
            "output": f"leg{index}", "cases": "4",
        }  # fmt: skip
        leg = runner.run(inputs, installed(planted))
        assert leg.status == 0, leg.steps["run"].log
        folders.append(leg.artifacts / f"shard-{index + 1}")
    before = repository.github.bodies(BOT)
    inputs = {
        "mode": "report", "paths": "\n".join(map(str, folders)), "output": "merged", "python": sys._base_executable,
        "artifact-name": "merged", "comment": "always",
    }  # fmt: skip
    record = repository.runner(tmp_path / "merge", run_id=str(int(RUN_ID) + 1)).run(inputs)
    log = "\n".join(step.log for step in record.steps.values())
    assert (record.status, record.outputs["conclusion"]) == (1, "failure"), log
    merged = json.loads((record.artifacts / "merged" / "report.json").read_text("utf-8"))
    whole = json.loads((planted.artifacts / ARTIFACT / "report.json").read_text("utf-8"))
    assert {item["test"] for item in merged["results"]} == {item["test"] for item in whole["results"]}
    assert {item["operator"] for item in merged["findings"]} == {PLANTED}
    assert (record.artifacts / "merged" / "junit.xml").is_file()
    assert len(repository.github.bodies(BOT)) == len(before) + 1  # `merged` is another check than the first
    packages = Path(record.steps["prepare"].outputs["packages"])
    assert not (packages / "torch").exists()


def publishing(repository: Repository, planted: ActionRecord, scratch: Path) -> ActionRunner:
    """Return a runner of the job that comments: it needs the one that tests, in the same run, and has no checkout."""
    archive = shutil.make_archive(str(scratch / "artifact"), "zip", planted.artifacts / ARTIFACT)
    data = Path(archive).read_bytes()
    repository.github.artifacts[:] = [Stored(id=9, name=ARTIFACT, run_id=int(RUN_ID), data=data, repository=REPOSITORY)]
    repository.github.runs[int(RUN_ID)] = repository.github.heads[NUMBER]
    repository.github.jobs[int(RUN_ID)] = [(JOB, "failure"), ("report", None)]
    runner = repository.runner(scratch / "scratch")
    (scratch / "empty").mkdir()
    runner.workspace = scratch / "empty"
    return runner


def test_action__job_that_needs_the_one_that_tests__comments_once(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    before = repository.github.bodies(BOT)
    record = publishing(repository, planted, tmp_path).run({"python": sys._base_executable, "mode": "report"})
    log = "\n".join(step.log for step in record.steps.values())
    assert (record.status, record.steps["run"].outcome, record.outputs["conclusion"]) == (0, "skipped", "success"), log
    ((key, body),) = repository.github.bodies(BOT).items() - before.items()
    assert PLANTED in body
    assert record.outputs["comment-url"] == f"https://github.com/{REPOSITORY}/pull/{NUMBER}#issuecomment-{key}"
    assert [name for name, step in record.steps.items() if TOKEN in step.environ.values()] == ["publish"]
    assert [name for name, step in record.steps.items() if TOKEN in step.log] == []


def test_action__token_without_permission__warns_and_fails_nothing(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    repository.github.plant(refusal("GET", "/comments$"))
    runner = publishing(repository, planted, tmp_path)
    record = runner.run({"python": sys._base_executable, "mode": "report", "comment": "always"})
    publish = record.steps["publish"]
    assert (publish.outcome, publish.outputs, record.status) == ("success", {"comment-url": ""}, 0), publish.log
    assert "pull-requests: write" in publish.log


def test_action__fork__is_tested_without_a_token_that_writes_and_published_from_another_run(
    repository: Repository, planted: ActionRecord, tmp_path: Path
):
    github, fork, number = repository.github, "stranger/kernels", NUMBER + 1
    github.heads[number] = (fork, "faster", repository.sha)
    github.runs[int(RUN_ID)] = (fork, "faster", repository.sha)
    archive = shutil.make_archive(str(tmp_path / "artifact"), "zip", planted.artifacts / ARTIFACT)
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
