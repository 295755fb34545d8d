"""The pull request of a workflow run, found over real HTTP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ci_autotest.github.comment import Published
from ci_autotest.github.event import RunTarget
from tests import fake_github_values as values
from tests.fake_github import NUMBER, REPOSITORY, SHA, FakeGithub, Fault, refusal
from tests.fake_github_server import serving
from tests.publishing import event_of, published

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def github() -> Iterator[FakeGithub]:
    with serving(FakeGithub(heads={NUMBER: ("octo/kernels", "softmax", SHA)})) as fake:
        yield fake


def test_publish__workflow_run__finds_the_pull_request_of_the_run(github: FakeGithub) -> None:
    fork = ("mallory/kernels", "softmax", SHA)
    github.heads = {12: ("octo/kernels", "softmax", SHA), 13: fork, 14: (*fork[:2], "00" * 20)}
    github.runs = {77: fork}

    result = published(github, event=event_of(github, run_id=77, target=RunTarget(run_id=77)))

    assert (result.action, [row[0] for row in github.comments]) == ("created", [13])


def test_publish__workflow_run_without_an_open_pull_request__says_so(github: FakeGithub) -> None:
    github.runs = {77: ("octo/kernels", "softmax", "ab" * 20)}

    result = published(github, event=event_of(github, run_id=77, target=RunTarget(run_id=77)))

    assert result == Published(
        url=None,
        action="degraded",
        message=(
            "no comment was written: no open pull request has its head at abababababab on branch 'softmax' of "
            "octo/kernels, as run 77 has. It was closed, or has newer commits."
        ),
    )


@pytest.mark.parametrize("path", ["runs", "pulls"])
def test_publish__run_cannot_be_read__names_the_permissions(github: FakeGithub, path: str) -> None:
    github.runs = {77: ("octo/kernels", "softmax", SHA)}
    github.plant(refusal("GET", path))

    result = published(github, event=event_of(github, target=RunTarget(run_id=77)))

    assert "The token lacks `actions: read` and `pull-requests: read`." in result.message


def test_publish__repository_of_the_run_was_deleted__says_so(github: FakeGithub) -> None:
    run = {**values.run(github.base, REPOSITORY, 77, ("mallory/kernels", "softmax", SHA)), "head_repository": None}
    github.plant(Fault(method="GET", path="runs", status=200, body=json.dumps(run).encode()))

    result = published(github, event=event_of(github, target=RunTarget(run_id=77)))

    assert result.message == (
        "no comment was written: no open pull request has its head at 5f5f5f5f5f5f on branch 'softmax' "
        "of a deleted repository, as run 77 has. It was closed, or has newer commits."
    )
