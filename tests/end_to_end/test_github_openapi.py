"""Requests of the client and answers of the loopback server, held against GitHub's published OpenAPI description.

The description is fetched once with npm into ``.tools/``; it is what keeps ``tests/fakes/github.py`` honest.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
import pytest

from ci_autotest.github import artifact, event, origin, sticky
from tests.fakes.clock import FakeClock
from tests.fakes.github import BOT, NUMBER, REPOSITORY, TOKEN, Answer, FakeGithub, Seen
from tests.fakes.github_server import serving
from tests.npm import fetched
from tests.objections import CASES, OBJECTIONS, OWN, RUN_ID, Way, arranged, commented
from tests.openapi import Description, described
from tests.publishing import at_once, event_of, ours, published

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def description() -> Description:
    return described(fetched("@octokit/openapi@23.0.2", "generated/api.github.com.json"))


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub()) as fake:
        yield fake


def flow(github: FakeGithub, folder: Path) -> list[Seen]:
    """Publish in both ways: create, update the lowest of two among 300, delete the other, compare with the base."""
    arranged(github, "run")
    github.artifacts.append(replace(github.artifacts[0], id=500, run_id=60, branch="main", repository=REPOSITORY))
    said = [commented(github, "run", folder, baseline="auto")[1]]
    for index in range(250):
        github.add_comment("someone", f"remark {index}")
    github.add_comment(BOT, ours("old", 60))
    said.append(commented(github, "run", folder, baseline="auto", name="other")[1])
    github.heads = {NUMBER: OWN}
    github.conclusions[RUN_ID] = None
    github.jobs[RUN_ID] = [("test", "failure"), ("report", None)]
    said.append(commented(github, "run", folder, event="pull_request", name="third")[1])
    github.comments = [(NUMBER, 10_000 + i, BOT, ours("old", 60)) for i in range(2)]
    said.append(commented(github, "folder", folder)[1])
    assert [re.findall(r"\((\w+)\)", text)[0] for text in said] == ["created", "created", "created", "updated"]
    return github.seen


def api(seen: Iterable[Seen]) -> list[Seen]:
    """Return the requests to the API: the store that archives are in is none of it."""
    return [each for each in seen if not each.path.startswith("/store/")]


def test_comment__whole_flow__is_as_github_describes(github, tmp_path, description: Description) -> None:
    seen = api(flow(github, tmp_path))

    assert {f"{each.method} {each.path}": description.wrong(each) for each in seen if description.wrong(each)} == {}
    assert {each.method + re.sub(r"/\d+", "/N", each.path.replace(REPOSITORY, "R")) for each in seen} == {
        "GET/repos/R/actions/runs/N",
        "GET/repos/R/actions/runs/N/artifacts",
        "GET/repos/R/actions/runs/N/jobs",
        "GET/repos/R/actions/artifacts",
        "GET/repos/R/actions/artifacts/N/zip",
        "GET/repos/R/commits",
        "GET/repos/R/pulls",
        "GET/repos/R/pulls/N",
        "GET/repos/R/issues/N/comments",
        "POST/repos/R/issues/N/comments",
        "PATCH/repos/R/issues/comments/N",
        "DELETE/repos/R/issues/comments/N",
    }


@pytest.mark.parametrize(("name", "way"), CASES)
def test_comment__github_objects__every_request_and_answer_is_as_github_describes(
    github, tmp_path, description: Description, name: str, way: Way
) -> None:
    """A planted answer is what is objected with: of it the request alone is held against the description."""
    objection = OBJECTIONS[name]
    arranged(github, way)
    objection.arrange(github)

    commented(github, way, tmp_path, FakeClock(tick_s=objection.tick_s))

    wrong = [
        f"{each.method} {each.path}: {text}"
        for each in api(github.seen)
        for text in (description.wrong_request(each) if each.planted else description.wrong(each))
    ]
    assert (tuple(wrong), len(api(github.seen)) > 0) == (objection.undescribed, True)


def met(each: Seen) -> bool:
    """Say whether a publisher wanted a comment that another had deleted just before.

    GitHub answers 404 then, which it does not describe for a comment's ``PATCH`` and ``DELETE``.
    """
    return each.method in {"PATCH", "DELETE"} and each.answer.status == HTTPStatus.NOT_FOUND


def test_comment__20_runs_at_once__is_as_github_describes(github, tmp_path, description: Description) -> None:
    """How many of the twenty meet depends on the machine."""
    github.heads = {NUMBER: OWN}

    failures = at_once(github, [{"text": str(i), "event": event_of(github, run_id=500 + i)} for i in range(20)])

    wrong = [
        f"{each.method} {each.path}: {text}"
        for each in github.seen
        for text in (description.wrong_request(each) if met(each) else description.wrong(each))
    ]
    assert (failures, wrong) == ([], [])


def test_comment__deleted_by_another_just_before__is_met_and_its_request_as_github_describes(
    github, description: Description
) -> None:
    github.heads = {NUMBER: OWN}
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    for method, body in (("DELETE", b""), ("PATCH", b'{"body": "x"}')):
        github.answer(method, f"/repos/{REPOSITORY}/issues/comments/404", headers, body)

    assert [(met(each), description.wrong_request(each)) for each in github.seen] == [(True, []), (True, [])]


def test_publish__token_of_a_person__is_as_github_describes(github, tmp_path, description: Description) -> None:
    github.person, github.login, github.token, github.heads = True, "hubot", "ghp_person", {NUMBER: OWN}

    published(github)

    assert "/user" in {each.path for each in github.seen}
    assert [wrong for each in github.seen for wrong in description.wrong(each)] == []


def test_answer__body_refused__is_as_github_describes(github: FakeGithub, description: Description) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    path = f"/repos/{REPOSITORY}/issues/{NUMBER}/comments"
    github.heads = {NUMBER: OWN}
    github.answer("POST", path, headers, json.dumps({"body": "x" * 65_537}).encode())
    github.answer("POST", path.replace("/12/", "/13/"), headers, b'{"body": "x"}')

    assert [(each.answer.status, description.wrong(each)) for each in github.seen] == [(422, []), (404, [])]


@pytest.mark.parametrize(
    ("struct", "component"),
    [
        pytest.param(sticky.Comment, "issue-comment", id="comment"),
        pytest.param(sticky.User, "simple-user", id="user"),
        pytest.param(event.WorkflowRun, "workflow-run", id="run"),
        pytest.param(origin.Pull, "pull-request-simple", id="pull request of a list"),
        pytest.param(origin.Pull, "pull-request", id="pull request"),
        pytest.param(event.HeadRepository, "repository", id="repository"),
        pytest.param(event.HeadRepository, "minimal-repository", id="minimal repository"),
        pytest.param(artifact.Artifact, "artifact", id="artifact"),
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
def test_wrong__planted_fault__is_found(method, changes, said, github, tmp_path, description: Description) -> None:
    good = next(
        each for each in api(flow(github, tmp_path)) if method in {each.method, each.path.split("/")[-1].upper()}
    )

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
