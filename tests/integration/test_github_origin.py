"""The pull request of a workflow run, found over real HTTP."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ci_autotest.github.event import PullRequestTarget, RunTarget
from ci_autotest.github.http_messages import Forbidden
from ci_autotest.github.origin import Absent, Origin
from tests.fakes import github_values as values
from tests.fakes.github import NUMBER, REPOSITORY, SHA, FakeGithub, Fault, refusal
from tests.fakes.github_server import serving
from tests.publishing import event_of, found

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = ("octo/kernels", "softmax", SHA)
FORK = ("mallory/kernels", "softmax", SHA)


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub(heads={NUMBER: OWN})) as fake:
        yield fake


def of_run(github: FakeGithub) -> Origin | Absent | Forbidden:
    return found(github, event_of(github, run_id=77, target=RunTarget(run_id=77)))


def target(number: int, *, from_fork: bool) -> PullRequestTarget:
    return PullRequestTarget(number=number, head_sha=SHA, from_fork=from_fork, base="main")


def test_find__workflow_run__is_the_pull_request_of_the_run(github: FakeGithub) -> None:
    github.heads = {12: OWN, 13: FORK, 14: (*FORK[:2], "00" * 20)}
    github.runs = {77: FORK}

    origin = of_run(github)
    assert (origin.pull, origin.sha, origin.run.id) == (target(13, from_fork=True), SHA, 77)


def test_find__two_pull_requests_with_one_head__is_the_lower(github: FakeGithub) -> None:
    github.heads = {15: FORK, 14: FORK}
    github.runs = {77: FORK}

    assert of_run(github).pull == target(14, from_fork=True)


@pytest.mark.parametrize(
    ("arrange", "source"),
    [
        pytest.param({"heads": {12: ("octo/kernels", "softmax", "00" * 20)}}, "octo/kernels", id="head has moved"),
        pytest.param({"closed": {12}}, "octo/kernels", id="closed or merged"),
        pytest.param({"heads": {}}, "octo/kernels", id="none"),
        pytest.param({"heads": {12: FORK}}, "octo/kernels", id="a fork has the same branch and commit"),
    ],
)
def test_find__no_open_pull_request_has_the_run_s_head__says_so(github: FakeGithub, arrange, source) -> None:
    github.runs = {77: OWN}
    for name, value in arrange.items():
        setattr(github, name, value)

    assert of_run(github) == Absent(
        "no comment was written: no open pull request has its head at 5f5f5f5f5f5f on branch 'softmax' "
        f"of {source}, as run 77 has. It was closed, or has newer commits."
    )


@pytest.mark.parametrize("path", ["runs", "pulls"])
def test_find__run_cannot_be_read__is_forbidden(github: FakeGithub, path: str) -> None:
    github.runs = {77: OWN}
    github.plant(refusal("GET", path))

    result = of_run(github)

    assert isinstance(result, Forbidden)
    assert (result.status, path in result.where) == (403, True)


def test_find__repository_of_the_run_was_deleted__says_so(github: FakeGithub) -> None:
    run = {**values.run(github.base, REPOSITORY, 77, FORK), "head_repository": None}
    github.plant(Fault(method="GET", path="runs", status=200, body=json.dumps(run).encode()))

    assert of_run(github) == Absent(
        "no comment was written: no open pull request has its head at 5f5f5f5f5f5f on branch 'softmax' "
        "of a deleted repository, as run 77 has. It was closed, or has newer commits."
    )


def test_find__event_s_own_pull_request__is_looked_at(github: FakeGithub) -> None:
    assert found(github, event_of(github)) == Origin(pull=target(12, from_fork=False), sha=SHA)


def test_find__event_s_own_pull_request_has_newer_commits__says_so(github: FakeGithub) -> None:
    github.heads = {12: ("octo/kernels", "softmax", "ab" * 20)}

    assert found(github, event_of(github)) == Absent(
        "no comment was written: octo/kernels#12 has its head at abababababab by now, and 5f5f5f5f5f5f was tested."
    )


def test_find__event_that_does_not_say_the_head__takes_the_one_that_is_there(github: FakeGithub) -> None:
    event = replace(event_of(github), target=PullRequestTarget(number=12, head_sha=None, from_fork=None))

    assert found(github, event) == Origin(pull=target(12, from_fork=False), sha=SHA)
