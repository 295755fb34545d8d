"""Requests of the client and answers of the loopback server, held against GitHub's published OpenAPI description.

The description is fetched once with npm into ``.tools/``; it is what keeps ``tests/fake_github.py`` honest.
"""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import requests

from ci_autotest.github import origin, sticky
from ci_autotest.github.comment import publish
from ci_autotest.github.event import Event, PullRequestTarget, RunTarget
from tests.fake_github import BOT, NUMBER, REPOSITORY, SHA, TOKEN, Answer, FakeGithub, Seen, refusal
from tests.fake_github_server import serving
from tests.openapi import Description, described

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.heavy

PACKAGE = "@octokit/openapi@23.0.2"
MEMBER = "package/generated/api.github.com.json"
CACHE = Path(__file__).parents[2] / ".tools" / "octokit-openapi-23.0.2"

OURS = sticky.sticky("ci-autotest", sticky.Turn(400, 1), "old").body


@pytest.fixture(scope="module")
def description() -> Description:
    path = CACHE / "api.github.com.json"
    if not path.exists():
        _fetch(path)
    return described(path)


def _fetch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=path.parent, check=True, capture_output=True, text=True, timeout=300
    )
    archive = path.parent / packed.stdout.split()[-1]
    with tarfile.open(archive) as files:
        member = files.extractfile(MEMBER)
        assert member is not None
        # Renamed when it is whole: an interrupted run leaves no half of it.
        partial = path.with_suffix(".part")
        partial.write_bytes(member.read())
    partial.rename(path)
    archive.unlink()


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    fork = ("mallory/kernels", "softmax", SHA)
    with serving(FakeGithub(heads={NUMBER: fork}, runs={77: fork})) as fake:
        yield fake


def publish_to(github: FakeGithub, target: PullRequestTarget | RunTarget) -> str:
    event = Event(
        name="workflow_run", repository=REPOSITORY, api_url=github.base, server_url="https://github.com", token=TOKEN,
        sha=SHA, run_id=500, attempt=1, target=target,
    )  # fmt: skip
    with requests.Session() as session:
        result = publish(event, "2 misaligned", session=session, clock=lambda: 0.0, sleep=lambda _: None)
    return result.action


def flow(github: FakeGithub) -> list[Seen]:
    """Find the pull request, update the lowest of two comments among 130, delete the other; then create one."""
    for index in range(130):
        github.add_comment("someone", f"remark {index}")
    github.add_comment(BOT, OURS)
    github.add_comment(BOT, OURS)
    actions = [publish_to(github, RunTarget(run_id=77))]
    github.comments.clear()
    actions.append(publish_to(github, PullRequestTarget(number=NUMBER, head_sha=SHA, from_fork=True)))
    assert actions == ["updated", "created"]
    return github.seen


def test_publish__whole_flow__is_as_github_describes(github: FakeGithub, description: Description) -> None:
    seen = flow(github)

    assert {f"{each.method} {each.path}": description.wrong(each) for each in seen if description.wrong(each)} == {}
    assert {each.method + re.sub(r"/\d+", "/N", each.path.replace(REPOSITORY, "R")) for each in seen} == {
        "GET/user",
        "GET/repos/R/actions/runs/N",
        "GET/repos/R/pulls",
        "GET/repos/R/issues/N/comments",
        "POST/repos/R/issues/N/comments",
        "PATCH/repos/R/issues/comments/N",
        "DELETE/repos/R/issues/comments/N",
    }


def test_publish__token_of_a_person__is_as_github_describes(github: FakeGithub, description: Description) -> None:
    github.person, github.login = True, "hubot"
    publish_to(github, RunTarget(run_id=77))

    assert [wrong for each in github.seen for wrong in description.wrong(each)] == []


def test_publish__refused__is_as_github_describes(github: FakeGithub, description: Description) -> None:
    github.plant(refusal("POST"))
    action = publish_to(github, RunTarget(run_id=77))

    assert (action, [wrong for each in github.seen for wrong in description.wrong(each)]) == ("degraded", [])


def test_answer__body_refused__is_as_github_describes(github: FakeGithub, description: Description) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    path = f"/repos/{REPOSITORY}/issues/{NUMBER}/comments"
    github.answer("POST", path, headers, json.dumps({"body": "x" * 65_537}).encode())
    github.answer("POST", path.replace("/12/", "/13/"), headers, b'{"body": "x"}')

    assert [(each.answer.status, description.wrong(each)) for each in github.seen] == [(422, []), (404, [])]


@pytest.mark.parametrize(
    ("struct", "component"),
    [
        pytest.param(sticky.Comment, "issue-comment", id="comment"),
        pytest.param(sticky.User, "simple-user", id="user"),
        pytest.param(origin.Run, "workflow-run", id="run"),
        pytest.param(origin.Pull, "pull-request-simple", id="pull request"),
        pytest.param(origin.HeadRepository, "repository", id="repository"),
        pytest.param(origin.HeadRepository, "minimal-repository", id="minimal repository"),
    ],
)
def test_struct__every_field__is_one_that_github_always_sends(struct, component, description: Description) -> None:
    described, required = description.properties(component)
    fields = msgspec.structs.fields(struct)

    assert (
        {field.encode_name for field in fields} - described,
        {f.encode_name for f in fields if f.required} - required,
    ) == (
        set(),
        set(),
    )


@pytest.mark.parametrize(
    ("method", "changes", "said"),
    [
        pytest.param(
            "POST", {"content": {"text": "x"}}, ["body: 'text' is not described", "$: 'body' is a required"], id="body"
        ),
        pytest.param("POST", {"content": {"body": 1}}, ["$.body: 1 is not of type 'string'"], id="type in body"),
        pytest.param("POST", {"method": "PUT"}, ["PUT /repos/octo/kernels/issues/12/comments is not"], id="method"),
        pytest.param(
            "POST", {"path": "/repos/octo/kernels/remarks"}, ["POST /repos/octo/kernels/remarks is"], id="path"
        ),
        pytest.param("POST", {"headers": {}}, ["content type '' is not described"], id="content type"),
        pytest.param(
            "POST", {"path": "/repos/octo/kernels/issues/x/comments"}, ["path 'issue_number': $: 'x'"], id="number"
        ),
        pytest.param("PULLS", {"query": {"per-page": "9"}}, ["query 'per-page' is not described"], id="query"),
        pytest.param("PULLS", {"query": {"state": "opened"}}, ["query 'state': $: 'opened' is not one of"], id="enum"),
        pytest.param("PULLS", {"query": {"page": "x"}}, ["query 'page': $: 'x' is not of type 'integer'"], id="page"),
        pytest.param("PULLS", {"content": {}}, ["a body is not described"], id="body of a GET"),
        pytest.param("POST", {"answer": Answer(status=418)}, ["status 418 is not described"], id="status"),
        pytest.param(
            "POST", {"answer": Answer(status=201, content={"id": 1})}, ["is a required property"], id="answer"
        ),
        pytest.param("PULLS", {"answer": Answer(status=200, content=[{"head": None}])}, ["$[0].head"], id="null"),
        pytest.param(
            "DELETE", {"answer": Answer(status=204, content={})}, ["an answer with a body is"], id="204 with a body"
        ),
    ],
)
def test_wrong__planted_fault__is_found(method, changes, said, github, description: Description) -> None:
    good = next(each for each in flow(github) if method in {each.method, each.path.split("/")[-1].upper()})

    wrong = description.wrong(replace(good, **changes))

    assert (
        description.wrong(good),
        [part for part in said if not any(part in text for text in wrong)],
        wrong != [],
    ) == (
        [],
        [],
        True,
    )
