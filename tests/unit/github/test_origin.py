from __future__ import annotations

import pytest

from ci_autotest.github.event import HeadRepository, Owner, WorkflowRun
from ci_autotest.github.origin import Base, Head, Pull, choose

SHA = "ab" * 20


def repository(full_name: str) -> HeadRepository:
    return HeadRepository(full_name=full_name, owner=Owner(login=full_name.split("/", maxsplit=1)[0]))


def pull(number: int, source: str | None = "mallory/kernels", ref: str = "softmax", sha: str = SHA) -> Pull:
    head = Head(ref=ref, sha=sha, repo=source and repository(source))
    return Pull(id=number, number=number, head=head, base=Base(ref="main"))


RUN = WorkflowRun(id=7, head_sha=SHA, head_branch="softmax", head_repository=repository("mallory/kernels"))


@pytest.mark.parametrize(
    ("pulls", "number"),
    [
        pytest.param([pull(3)], 3, id="all equal"),
        pytest.param([pull(1, source="octo/kernels"), pull(3)], 3, id="same branch and commit elsewhere"),
        pytest.param([pull(1, ref="other"), pull(3)], 3, id="same commit on another branch"),
        pytest.param([pull(1, sha="00" * 20), pull(3)], 3, id="same branch with another commit"),
        pytest.param([pull(1, source=None), pull(3)], 3, id="deleted fork"),
        pytest.param([pull(4), pull(3)], 3, id="two into different bases"),
        pytest.param([pull(1, sha="00" * 20)], None, id="has newer commits"),
        pytest.param([], None, id="none is open"),
    ],
)
def test_choose__pull_requests_there_are(pulls: list[Pull], number: int | None) -> None:
    chosen = choose(pulls, RUN)

    assert (chosen and chosen.number) == number


def test_choose__repository_of_the_run_is_gone__is_none() -> None:
    run = WorkflowRun(id=7, head_sha=SHA, head_branch="softmax", head_repository=None)

    assert choose([pull(3, source=None)], run) is None
