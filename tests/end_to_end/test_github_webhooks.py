"""Events as GitHub publishes them are read; those of a fork, of which it publishes none, are derived and held to its schema."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from ci_autotest.github.event import PullRequestTarget, RunTarget, read_event
from tests.fakes.github import BOT, NUMBER, REPOSITORY, SHA, FakeGithub
from tests.fakes.github_server import serving
from tests.npm import fetched
from tests.objections import FORK, RUN_ID, arranged, commented, environ_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy

VERSION = "7.6.1"


@pytest.fixture(scope="module")
def examples() -> dict[str, list[dict[str, Any]]]:
    path = fetched(f"@octokit/webhooks-examples@{VERSION}", "api.github.com/index.json")
    return {event["name"]: event["examples"] for event in json.loads(path.read_bytes())}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(fetched(f"@octokit/webhooks-schemas@{VERSION}", "schema.json").read_bytes())


def wrong(schema: dict[str, Any], name: str, payload: dict[str, Any]) -> list[str]:
    """Return what the published schema has against a payload."""
    validator = jsonschema.Draft7Validator({**schema, "oneOf": [{"$ref": f"#/definitions/{name}${payload['action']}"}]})
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(payload)]


def read(github: FakeGithub, folder: Path, name: str, payload: dict[str, Any]):
    environ = environ_of(github, "run", folder, name)
    (folder / "event.json").write_text(json.dumps(payload))
    return read_event({**environ, "GITHUB_REPOSITORY": payload["repository"]["full_name"]}).target


@pytest.fixture
def github() -> FakeGithub:
    return FakeGithub(base="https://api.github.com")


def test_read_event__every_published_pull_request__is_read(github, tmp_path, examples) -> None:
    for payload in examples["pull_request"]:
        pull = payload["pull_request"]
        assert read(github, tmp_path, "pull_request", payload) == PullRequestTarget(
            number=pull["number"], head_sha=pull["head"]["sha"], from_fork=False, base=pull["base"]["ref"]
        )
    assert len(examples["pull_request"]) > 20


def test_read_event__every_published_workflow_run__is_read(github, tmp_path, examples) -> None:
    for payload in examples["workflow_run"]:
        run = payload["workflow_run"]
        target = read(github, tmp_path, "workflow_run", payload)
        assert isinstance(target, RunTarget)
        assert target.run is not None
        assert (target.run_id, target.run.head_sha, target.run.run_attempt) == (run["id"], run["head_sha"], 1)
    assert len(examples["workflow_run"]) > 3


def test_read_event__published_comment_made_one_on_a_pull_request__is_read(github, tmp_path, examples, schema) -> None:
    for example in examples["issue_comment"]:
        payload = copy.deepcopy(example)
        url = payload["issue"]["url"].replace("/issues/", "/pulls/")
        payload["issue"]["pull_request"] = dict.fromkeys(("url", "html_url", "diff_url", "patch_url"), url)
        if not wrong(schema, "issue_comment", example):
            assert wrong(schema, "issue_comment", payload) == []
        assert read(github, tmp_path, "issue_comment", payload).number == payload["issue"]["number"]


@pytest.mark.parametrize("is_deleted", [False, True], ids=["fork", "deleted fork"])
def test_read_event__published_pull_request_made_one_of_a_fork__is_a_fork_s(
    github, tmp_path, examples, schema, is_deleted
) -> None:
    for example in examples["pull_request"]:
        payload = copy.deepcopy(example)
        head = payload["pull_request"]["head"]
        head["label"] = f"mallory:{head['ref']}"
        head["repo"] = None if is_deleted else {**head["repo"], "full_name": "mallory/kernels", "fork": True}
        assert set(wrong(schema, "pull_request", payload)) <= set(wrong(schema, "pull_request", example))
        assert read(github, tmp_path, "pull_request", payload).from_fork is True


def test_comment__published_workflow_run_made_one_of_a_fork__finds_its_pull_request(tmp_path, examples, schema) -> None:
    example = next(each for each in examples["workflow_run"] if each["action"] == "completed")
    payload = copy.deepcopy(example)
    run = payload["workflow_run"]
    run |= {"id": RUN_ID, "head_sha": SHA, "head_branch": FORK[1], "event": "pull_request", "pull_requests": []}
    run["head_repository"] |= {"full_name": FORK[0], "fork": True}
    run["head_repository"]["owner"]["login"] = "mallory"
    assert set(wrong(schema, "workflow_run", payload)) <= set(wrong(schema, "workflow_run", example))

    with serving(FakeGithub()) as github:
        arranged(github, "run")
        github.heads[NUMBER + 1] = (REPOSITORY, *FORK[1:])
        # Nothing is asked about the run: GitHub's event says it.
        github.runs.clear()
        status, said = commented(github, "run", tmp_path, event="workflow_run", payload=payload)

    assert (status, "(created)" in said, {row[0] for row in github.comments if row[2] == BOT}) == (0, True, {NUMBER})
