"""Publish to the server on the loopback device, under a clock that only moves when it is told to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import requests

from ci_autotest.errors import PublishError
from ci_autotest.github.client import Client
from ci_autotest.github.comment import Published, publish
from ci_autotest.github.comment_sections import CommentSection, Turn, compose, marker
from ci_autotest.github.event import Event, PullRequestTarget, RunTarget
from ci_autotest.github.origin import find_pull_request
from ci_autotest.github.sticky import WantedComment
from tests.fakes.clock import FakeClock, HurriedClock
from tests.fakes.github import NUMBER, REPOSITORY, SHA

if TYPE_CHECKING:
    from ci_autotest.github.http_messages import Forbidden
    from ci_autotest.github.origin import Absent, Origin
    from tests.fakes.github import FakeGithub

LIST = f"/repos/{REPOSITORY}/issues/{NUMBER}/comments"
POST = f"POST {LIST}"


def event_of(
    github: FakeGithub, run_id: int = 500, attempt: int = 1, target: PullRequestTarget | RunTarget | None = None
) -> Event:
    return Event(
        name="pull_request",
        repository=REPOSITORY,
        api_url=github.base,
        server_url="https://github.com",
        token=github.token,
        run_id=run_id,
        attempt=attempt,
        target=target or PullRequestTarget(number=NUMBER, head_sha=SHA, from_fork=False),
    )


def client_for(event: Event, session: requests.Session, clock: FakeClock, deadline_s: float = 120.0) -> Client:
    return Client(
        session=session, api_url=event.api_url, token=event.token, clock=clock, sleep=clock.sleep,
        deadline_s=deadline_s, start_s=clock(),
    )  # fmt: skip


def section(text: str, run_id: int = 500, attempt: int = 1, leg: str = "") -> CommentSection:
    return CommentSection(leg=leg, turn=Turn(run_id, attempt), text=f"### ✗ {text}")


def published(
    github: FakeGithub,
    text: str = "2 misaligned",
    event: Event | None = None,
    name: str = "ci-autotest",
    clock: FakeClock | None = None,
    deadline_s: float = 120.0,
    **wanted,
) -> Published:
    """Publish one section to the pull request of the event, as the command does once it has found it."""
    event, leg = event or event_of(github), wanted.pop("leg", "")
    target = (
        event.target
        if isinstance(event.target, PullRequestTarget)
        else PullRequestTarget(number=NUMBER, head_sha=SHA, from_fork=None)
    )
    want = WantedComment(
        marker=marker(name), turn=Turn(event.run_id, event.attempt),
        sections=(section(text, event.run_id, event.attempt, leg),), **wanted,
    )  # fmt: skip
    with requests.Session() as session:
        return publish(client_for(event, session, clock or FakeClock(), deadline_s), event, target, want)


def found(github: FakeGithub, event: Event) -> Origin | Absent | Forbidden:
    """Return the pull request that is found for an event."""
    with requests.Session() as session:
        return find_pull_request(client_for(event, session, FakeClock()), event)


def refused(github: FakeGithub, **options) -> str:
    with pytest.raises(PublishError) as caught:
        published(github, **options)
    return str(caught.value)


def ours(text: str, run_id: int = 500, attempt: int = 1, name: str = "ci-autotest", leg: str = "") -> str:
    return compose(marker(name), [section(text, run_id, attempt, leg)])


def url(comment_id: int) -> str:
    return f"https://github.com/{REPOSITORY}/pull/{NUMBER}#issuecomment-{comment_id}"


def at_once(github: FakeGithub, publishers: list[dict]) -> list[str]:
    """Publish all at once, each in its own thread; return what went wrong."""
    gate, failures = threading.Barrier(len(publishers)), []

    def publish_one(given: dict) -> None:
        gate.wait()
        try:
            published(github, clock=HurriedClock(), **given)
        except PublishError as error:
            failures.append(str(error))

    threads = [threading.Thread(target=publish_one, args=(given,)) for given in publishers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
