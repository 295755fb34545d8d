"""What the action's last step tells the publisher of its event."""

from __future__ import annotations

import pytest

from action import event
from ci_autotest.github.event import HeadRepository, Owner, PullRequestTarget, RunTarget, WorkflowRun, read_event

HEAD = "ab" * 20
PULL = {
    "EVENT_NUMBER": "12", "EVENT_HEAD_SHA": HEAD, "EVENT_HEAD_REPOSITORY": "octo/kernels", "EVENT_BASE": "main",
}  # fmt: skip
RUN = {
    "EVENT_RUN": "77", "EVENT_RUN_ATTEMPT": "3", "EVENT_RUN_HEAD_SHA": HEAD, "EVENT_RUN_HEAD_BRANCH": "softmax",
    "EVENT_RUN_HEAD_REPOSITORY": "mallory/kernels", "EVENT_RUN_HEAD_OWNER": "mallory",
}  # fmt: skip
FORK = HeadRepository(full_name="mallory/kernels", owner=Owner(login="mallory"))


def target(name: str, given: dict[str, str]):
    environ = {
        "GITHUB_EVENT_NAME": name, "GITHUB_REPOSITORY": "octo/kernels", "GITHUB_TOKEN": "ghs_x", "GITHUB_RUN_ID": "1",
        "GITHUB_RUN_ATTEMPT": "1", "GITHUB_SHA": HEAD, event.VARIABLE: event.payload(given),
    }  # fmt: skip
    return read_event(environ).target


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("pull_request", PULL, PullRequestTarget(number=12, head_sha=HEAD, from_fork=False, base="main")),
        (
            "pull_request",
            PULL | {"EVENT_HEAD_REPOSITORY": ""},
            PullRequestTarget(number=12, head_sha=HEAD, from_fork=True, base="main"),
        ),
        ("issue_comment", {"EVENT_NUMBER": "12"}, PullRequestTarget(number=12, head_sha=None, from_fork=None)),
        (
            "workflow_run",
            RUN,
            RunTarget(
                run_id=77,
                run=WorkflowRun(id=77, run_attempt=3, head_sha=HEAD, head_branch="softmax", head_repository=FORK),
            ),
        ),
        (
            "workflow_run",
            RUN | {"EVENT_RUN_HEAD_REPOSITORY": "", "EVENT_RUN_HEAD_OWNER": ""},
            RunTarget(
                run_id=77,
                run=WorkflowRun(id=77, run_attempt=3, head_sha=HEAD, head_branch="softmax", head_repository=None),
            ),
        ),
    ],
    ids=["pull request", "its fork was deleted", "comment on a pull request", "run of a fork", "run of a deleted fork"],
)
def test_payload__event__is_what_the_publisher_reads(name: str, given: dict[str, str], expected: object):
    assert target(name, given) == expected


@pytest.mark.parametrize("branch", ['"; touch owned', "a\nb", "${{ github.token }}", "\u2028"])
def test_payload__branch_with_any_name__stays_a_name(branch: str):
    assert target("workflow_run", RUN | {"EVENT_RUN_HEAD_BRANCH": branch}).run.head_branch == branch
